//! Renders leases as text and as JSON.

mod evidence;

use std::time::Duration;

use serde_json::{Value, json};

pub(super) use self::evidence::unclaimed;
use super::observed::{Evidence, Liveness, ObservedDocument, wall};
use super::roll_call::{Roll, Rolls};
use crate::table::{Row, Style};
use leasehold_core::election::{BootTime, RequestKind, Reservation, WallMillis};
use leasehold_core::lock::Entry;
use leasehold_guard::dispositions::signal_name;
pub(crate) use leasehold_host::duration::short;
use leasehold_host::log::millis;
use leasehold_mongodb::store::StoreInfo;
use leasehold_mongodb::store::mongo::operators::{
    ActionRecord, Content, LeaseRecord, RequestEffect, RequestRecord,
};
use leasehold_mongodb::store::mongo::{CommandResult, PastHolder};
use leasehold_status::dates::{date, date_in_seconds};

const HEADER: [&str; 9] = [
    "LEASE", "STATE", "HOLDER", "TOKEN", "SINCE", "RENEWED", "DURATION", "STANDBY", "NOTES",
];

/// Returns the time since a date on this machine's wall clock; `None` if the date is unknown or in
/// the future.
pub(super) fn since(at: WallMillis) -> Option<Duration> {
    let age = wall().0.checked_sub(at.0).filter(|_| at.0 > 0)?;
    u64::try_from(age).ok().map(Duration::from_millis)
}

pub(crate) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Returns the state of a lease, as shown in text and in JSON.
pub(super) fn state(seen: &ObservedDocument, lease: &LeaseRecord, now: BootTime) -> &'static str {
    match seen.evidence(now).map(|evidence| evidence.liveness) {
        _ if lease.is_retired() => "retired",
        Some(liveness) => liveness.as_str(),
        None if seen.silence.is_blind(now) => Liveness::Unseen.as_str(),
        None if lease.lease.paused => "paused",
        None => "free",
    }
}

pub(crate) fn table<const N: usize>(
    header: [&str; N],
    rows: impl Iterator<Item = Row>,
) -> Vec<Row> {
    let header = Row::new(header).styled(Style::Header);
    std::iter::once(header).chain(rows).collect()
}

pub(super) fn rows<'a>(
    shown: impl Iterator<Item = &'a ObservedDocument>,
    rolls: &Rolls,
    now: BootTime,
) -> Vec<Row> {
    table(HEADER, shown.map(|seen| row(seen, rolls, now)))
}

fn row(seen: &ObservedDocument, rolls: &Rolls, now: BootTime) -> Row {
    let other = |state: &str, notes: String| {
        let first = [seen.entry.name.clone(), state.to_owned()];
        let dashes = (first.len()..HEADER.len() - 1).map(|_| "-".to_owned());
        let cells = first.into_iter().chain(dashes).chain([notes]);
        Row::new(cells).styled(Style::Dim)
    };
    let lease = match &seen.entry.content {
        Content::Lease(lease) => lease,
        Content::Lock(_) => return other("lock", "-".to_owned()),
        Content::Foreign(why) => return other("foreign", format!("not a lease: {why}")),
    };
    let held = lease.held_by();
    let token = lease.holder_token().unwrap_or(lease.lease.token);
    let duration = lease.lease_duration();
    let (evidence, roll) = (seen.evidence(now), rolls.get(&seen.entry.name));
    let state = state(seen, lease, now);
    let is_blind = seen.silence.is_blind(now);
    let cells = [
        seen.entry.name.clone(),
        state.to_owned(),
        or_dash(lease.holder.as_ref().map(|holder| &holder.identity)),
        token.to_string(),
        or_dash(held.and_then(|held| since(held.acquired_at)).map(short)),
        or_dash(evidence.map(|evidence| evidence.renewed(now))),
        or_dash(duration.map(short)),
        or_dash(held.map(|_| standby(lease))),
        match is_blind && !lease.is_retired() {
            // Pauses, requests and candidates may have changed during the outage.
            true => seen.silence.unanswered(now),
            false => notes(lease, evidence, roll, now).join("; "),
        },
    ];
    let is_unanswered = || match roll {
        Some(Roll::Answered(present) | Roll::Earlier(present, _)) => present.is_empty(),
        _ => false,
    };
    Row::new(cells).styled(match evidence.map(|evidence| evidence.liveness) {
        _ if lease.is_retired() => Style::Dim,
        Some(Liveness::Expired | Liveness::Silent) => Style::Bad,
        Some(Liveness::Late | Liveness::Misdated | Liveness::Unseen) => Style::Warning,
        None if is_blind => Style::Warning,
        _ if lease.lease.paused => Style::Warning,
        None if unclaimed(lease).is_some() || is_unanswered() => Style::Bad,
        _ => Style::Plain,
    })
}

/// Returns the standby, with its priority if not zero.
pub(super) fn standby(lease: &LeaseRecord) -> String {
    let priority = priority(lease).filter(|priority| *priority > 0);
    match (&lease.standby, priority) {
        (Some(standby), Some(priority)) => format!("{standby} (priority {priority})"),
        (standby, _) => or_dash(standby.as_ref()),
    }
}

fn priority(lease: &LeaseRecord) -> Option<u32> {
    lease.lease.standby.as_ref().map(|standby| standby.priority)
}

pub(super) fn reserved(lease: &LeaseRecord) -> Option<&Reservation> {
    let reserved = lease.lease.reserved_for.as_ref();
    reserved.filter(|reserved| !reserved.is_head_start())
}

fn notes(
    lease: &LeaseRecord,
    evidence: Option<Evidence>,
    roll: Option<&Roll>,
    now: BootTime,
) -> Vec<String> {
    let mut notes = Vec::new();
    if evidence.is_none() && !lease.lease.paused {
        let known = roll.filter(|roll| !matches!(roll, Roll::NotCalled(_)));
        notes.extend(known.map(Roll::words));
    }
    if let Some(evidence) = evidence {
        match evidence.liveness {
            Liveness::Renews => {}
            Liveness::Unseen => notes.push(evidence.last_write(now)),
            Liveness::Misdated | Liveness::Late | Liveness::Silent | Liveness::Expired => {
                notes.push(evidence.expiry_of(lease));
                notes.extend(roll.map(Roll::words));
            }
        }
        notes.extend(evidence.dated());
    }
    if lease.lease.paused {
        let pause = lease.pause();
        let by = pause.and_then(|pause| pause.by.as_deref()).unwrap_or("?");
        let reason = pause.and_then(|pause| pause.reason.as_ref());
        let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
        notes.push(format!("paused by {by}{reason}"));
    }
    if let Some(request) = &lease.request {
        let words = self::request(request);
        notes.push(match ineffective(lease) {
            None if is_done(lease) => format!("{}: done", kind_of(request)),
            None => words,
            Some(why) => format!("{words}, no effect: {why}"),
        });
    }
    if let Some(reserved) = reserved(lease).filter(|_| lease.held_by().is_none()) {
        notes.push(format!("reserved for {}", reserved.identity));
    }
    let raised = lease.lease.token;
    if let Some(token) = lease.holder_token().filter(|token| *token != raised) {
        notes.push(format!("token raised to {raised} (the holder has {token})"));
    }
    notes
}

pub(super) fn request(request: &RequestRecord) -> String {
    let kind = kind_of(request);
    match &request.by {
        Some(by) => format!("{kind} requested by {by}"),
        None => format!("{kind} requested"),
    }
}

fn kind_of(request: &RequestRecord) -> String {
    match &request.request {
        Ok(valid) => match &valid.kind {
            RequestKind::StepDown => format!("step-down of token {}", valid.token),
            RequestKind::Transfer(_) => {
                let to = request.to.as_deref().unwrap_or("?");
                format!("transfer of token {} to {to}", valid.token)
            }
        },
        Err(_) => "invalid request".to_owned(),
    }
}

/// Returns true if the leader has stepped down because of the request, and no candidate has
/// acquired the lease since then. The next acquisition removes the request.
pub(super) fn is_done(lease: &LeaseRecord) -> bool {
    let request = lease.request.as_ref();
    let request = request.and_then(|request| request.request.as_ref().ok());
    let last = lease.history.last();
    lease.effect() == Some(RequestEffect::Free)
        && request.zip(last).is_some_and(|(request, last)| {
            let reason = match request.kind {
                RequestKind::StepDown => "requested",
                RequestKind::Transfer(_) => "transferred",
            };
            last.token == Some(request.token) && last.reason.as_deref() == Some(reason)
        })
}

/// Returns why the pending request has no effect, or `None` if the request has taken effect or will
/// take effect.
pub(super) fn ineffective(lease: &LeaseRecord) -> Option<String> {
    match lease.effect()? {
        RequestEffect::Effective => None,
        RequestEffect::Free if is_done(lease) => None,
        RequestEffect::OtherToken { named, leader } => Some(format!(
            "the request names token {named}, but the holder has token {leader}"
        )),
        RequestEffect::Free => {
            Some("the lease has no holder; the next acquisition removes the request".to_owned())
        }
        RequestEffect::Invalid(why) => Some(why.to_owned()),
    }
}

/// Returns a duration as a JSON number of milliseconds, with at most three decimal places.
pub(crate) fn json_millis(duration: Duration) -> Value {
    three_digits(duration.as_secs_f64() * 1e3)
}

pub(crate) fn three_digits(number: f64) -> Value {
    let thousandths = (number * 1e3).round();
    match thousandths % 1e3 == 0.0 {
        // A whole number is written without a decimal point.
        true => json!((thousandths / 1e3) as i64),
        false => json!(thousandths / 1e3),
    }
}

/// Returns a document as JSON, without its history.
pub(super) fn object(seen: &ObservedDocument, roll: Option<&Roll>, now: BootTime) -> Value {
    let name = &seen.entry.name;
    let lease = match &seen.entry.content {
        Content::Lease(lease) => lease,
        Content::Lock(_) => return json!({ "lease": name, "state": "lock" }),
        Content::Foreign(why) => {
            return json!({ "lease": name, "state": "foreign", "foreign": why });
        }
    };
    let evidence = seen.evidence(now);
    let holder = lease.held_by().zip(lease.holder.as_ref());
    let holder = holder.map(|(holder, shown)| {
        json!({
            "identity": shown.identity.as_str(),
            "token": lease.holder_token().map(|token| token.get()),
            "address": shown.address,
            "since": date(holder.acquired_at),
            "renewed_at": date(shown.renewed_at),
            "lease_duration_ms": holder.lease_duration.millis,
            "silent_ms": evidence.map(|evidence| millis(evidence.silent_for(now))),
            "renewal_seen": seen.silence.renewal_seen,
            "last_write_ago_ms": evidence.and_then(|evidence| evidence.last_write_ago),
            "expires_for_others_in_ms": evidence.map(|evidence| millis(evidence.expires_in)),
        })
    });
    let reserved = reserved(lease).map(|reserved| {
        json!({ "identity": reserved.identity.as_str(), "for_ms": millis(reserved.duration) })
    });
    let mut object = json!({
        "lease": name,
        "state": state(seen, lease, now),
        "token": lease.lease.token.get(),
        "holder": holder,
        "paused": lease.lease.paused,
        "retired": lease.is_retired(),
        "request": lease.request.as_ref().map(|request| request_object(request, lease)),
        "reserved_for": reserved,
        "standby": holder.as_ref().and(lease.standby.as_ref()).map(|standby| standby.as_str()),
        "standby_priority": holder.and(priority(lease)),
    });
    if let Some(roll) = roll {
        roll.add_to(&mut object);
    }
    object
}

fn request_object(request: &RequestRecord, lease: &LeaseRecord) -> Value {
    let valid = request.request.as_ref().ok();
    let kind = valid.map(|request| match request.kind {
        RequestKind::StepDown => "step_down",
        RequestKind::Transfer(_) => "transfer",
    });
    json!({
        "kind": kind,
        "token": valid.map(|request| request.token.get()),
        "to": request.to,
        "by": request.by,
        "reason": request.reason,
        "at": date(request.at),
        "effective": lease.effect() == Some(RequestEffect::Effective),
        "done": is_done(lease),
        "why_not": ineffective(lease),
    })
}

pub(crate) fn entry_object(entry: &Entry) -> Value {
    json!({
        "identity": entry.owner.identity.as_str(),
        "mode": entry.mode.as_str(),
        "token": entry.token.map(|token| token.get()),
        "slot": entry.slot,
        "at_least_ms": millis(entry.min_hold),
        "over": entry.work_done,
        "since": date(entry.owner.acquired_at),
        "renewed_at": date(entry.owner.renewed_at),
        "lease_duration_ms": entry.lease_duration.millis,
    })
}

pub(super) fn ended_object(ended: &PastHolder) -> Value {
    let mut object = json!({
        "token": ended.token.map(|token| token.get()),
        "identity": ended.identity.as_ref().map(|identity| identity.as_str()),
        "acquired_at": date(ended.acquired_at),
        "ended_at": date(ended.ended_at),
        "reason": ended.reason,
        "ended_earlier": ended_earlier(ended),
    });
    match ended.result {
        Some(CommandResult::Exited {
            code,
            leftovers_stopped,
        }) => {
            object["exit_code"] = code.into();
            object["leftovers_stopped"] = leftovers_stopped.into();
        }
        Some(CommandResult::Signal(number)) => {
            object["signal"] = number.into();
            object["signal_name"] = signal_name(number).into();
        }
        None => {}
    }
    object
}

pub(super) fn add_past(object: &mut Value, lease: &LeaseRecord) {
    let action = |action: &ActionRecord| {
        json!({
            "action": action.action,
            "token": action.token.map(|token| token.get()),
            "to": action.to,
            "by": action.by,
            "reason": action.reason,
            "at": date(action.at),
        })
    };
    object["history"] = lease.history.iter().map(ended_object).collect();
    object["actions"] = lease.actions.iter().map(action).collect();
}

pub(super) fn place(store: &StoreInfo) -> String {
    let (database, collection) = (&store.database, &store.collection);
    format!("{database}.{collection}, {}", store.describe())
}

pub(super) fn store_object(store: &StoreInfo) -> Value {
    json!({
        "kind": store.kind.as_str(),
        "set": store.set,
        "database": store.database,
        "collection": store.collection,
    })
}

/// Reasons that imply that the holder stopped before the recorded end. The history has only the
/// time of the write that ended the hold. After an outage or a takeover, the holder had stopped
/// before this write.
const ENDED_EARLIER: [&str; 8] = [
    "took_over",
    "died",
    "expired",
    "broken",
    "deadline",
    "store_went_back",
    "duplicate",
    "workload_stuck",
];

pub(super) fn ended_earlier(ended: &PastHolder) -> bool {
    let reason = ended.reason.as_deref();
    reason.is_some_and(|reason| ENDED_EARLIER.contains(&reason))
}

/// Returns how long a former holder held the lease or lock. `<` marks an upper bound.
pub(super) fn held_for(ended: &PastHolder) -> String {
    let held = ended.ended_at.0.checked_sub(ended.acquired_at.0);
    let held = held.and_then(|millis| u64::try_from(millis).ok());
    let Some(held) = held.map(|millis| short(Duration::from_millis(millis))) else {
        return "-".to_owned();
    };
    match ended_earlier(ended) {
        true => format!("< {held}"),
        false => held,
    }
}

/// Returns why a hold ended, from the point of view of the former holder. For a takeover, the
/// document contains the new holder's reason.
pub(super) fn end_reason(ended: &PastHolder) -> Option<&str> {
    match ended.reason.as_deref() {
        Some("took_over") => Some("expired"),
        other => other,
    }
}

pub(super) fn history(lease: &LeaseRecord) -> Vec<Row> {
    let ends = lease.history.iter().rev().map(|ended| {
        Row::new([
            or_dash(ended.token),
            or_dash(ended.identity.as_ref()),
            held_for(ended),
            date_in_seconds(ended.ended_at),
            or_dash(since(ended.ended_at).map(short)),
            or_dash(end_reason(ended)),
        ])
    });
    let header = ["TOKEN", "IDENTITY", "LED FOR", "ENDED", "AGE", "REASON"];
    table(header, ends)
}

pub(super) fn actions(lease: &LeaseRecord) -> Vec<Row> {
    let actions = lease.actions.iter().rev().map(|action| {
        let kind = match &action.to {
            Some(to) => format!("{} to {to}", action.action),
            None => action.action.clone(),
        };
        Row::new([
            date_in_seconds(action.at),
            or_dash(since(action.at).map(short)),
            kind,
            or_dash(action.token),
            or_dash(action.by.as_ref()),
            action.reason.clone().unwrap_or_default(),
        ])
    });
    table(["AT", "AGE", "ACTION", "TOKEN", "BY", "REASON"], actions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_holder_that_stopped_before_its_recorded_end_is_an_upper_bound() {
        for (reason, shown) in [
            ("requested", "1m13s"),
            ("released", "1m13s"),
            ("took_over", "< 1m13s"),
            ("died", "< 1m13s"),
            ("deadline", "< 1m13s"),
            ("broken", "< 1m13s"),
        ] {
            let ended = PastHolder {
                token: None,
                identity: None,
                slot: None,
                acquired_at: WallMillis(1_000),
                ended_at: WallMillis(74_000),
                reason: Some(reason.to_owned()),
                result: None,
            };
            assert_eq!(held_for(&ended), shown, "{reason}");
            assert_eq!(
                ended_object(&ended)["ended_earlier"],
                shown.starts_with('<')
            );
        }
    }

    #[test]
    fn numbers_of_json_have_at_most_three_digits_after_the_point() {
        let millis = |nanos| json_millis(Duration::from_nanos(nanos)).to_string();
        assert_eq!(millis(1_234_567_890), "1234.568");
        assert_eq!(millis(13_600_000), "13.6");
        assert_eq!(millis(24_000_000_000), "24000");
        assert_eq!(three_digits(-0.012_345).to_string(), "-0.012");
    }
}
