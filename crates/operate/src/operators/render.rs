//! Leases as text and as JSON.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::observed::{Liveness, ObservedDocument, Silence};
use crate::table::{Row, Style};
use leasehold_core::election::{BootTime, RequestKind, WallMillis};
use leasehold_host::log::millis;
use leasehold_mongodb::store::mongo::PastHolder;
use leasehold_mongodb::store::mongo::operators::{
    ActionRecord, Content, LeaseRecord, RequestEffect, RequestRecord,
};
use leasehold_status::render::date;

/// The header of the table of leases.
pub(super) const HEADER: [&str; 9] = [
    "LEASE", "STATE", "HOLDER", "TOKEN", "SINCE", "RENEWED", "DURATION", "STANDBY", "NOTES",
];

/// The current instant on both clocks: one for observations, one for dates of documents.
#[derive(Debug, Clone, Copy)]
pub(super) struct Instant {
    pub(super) boot: BootTime,
    pub(super) wall: SystemTime,
}

impl Instant {
    pub(super) fn now() -> Self {
        Self {
            boot: leasehold_clock::boot_now(),
            wall: leasehold_clock::wall_now(),
        }
    }

    /// Returns the time since a date of a document, by this machine's wall clock; `None` for a date
    /// in the future or without a value.
    fn since(self, at: WallMillis) -> Option<Duration> {
        let at = Duration::from_millis(u64::try_from(at.0).ok().filter(|at| *at > 0)?);
        let now = self.wall.duration_since(UNIX_EPOCH).ok()?;
        now.checked_sub(at)
    }
}

/// The state of a lease in one word.
fn state(lease: &LeaseRecord, silence: Silence, now: BootTime) -> &'static str {
    match lease.lease_duration() {
        Some(duration) if silence.liveness(duration, now) == Liveness::Expired => "expired",
        Some(_) => "held",
        None if lease.lease.paused => "paused",
        None => "free",
    }
}

/// Returns the row of a document in the table of leases.
pub(super) fn row(seen: &ObservedDocument, now: Instant) -> Row {
    let name = seen.entry.name.clone();
    let lease = match &seen.entry.content {
        Content::Lease(lease) => lease,
        Content::Lock(_) => return Row::new([name, "lock".to_owned()]).styled(Style::Dim),
        Content::Foreign(why) => {
            let dash = || "-".to_owned();
            let why = format!("not a lease: {why}");
            let cells = [
                name,
                "foreign".to_owned(),
                dash(),
                dash(),
                dash(),
                dash(),
                dash(),
                dash(),
                why,
            ];
            return Row::new(cells).styled(Style::Dim);
        }
    };
    let state = state(lease, seen.silence, now.boot);
    let (token, notes) = (lease.lease.token.to_string(), notes(lease).join("; "));
    let Some((holder, shown)) = lease.held_by().zip(lease.holder.as_ref()) else {
        let dash = || "-".to_owned();
        let cells = [
            name,
            state.to_owned(),
            dash(),
            token,
            dash(),
            dash(),
            dash(),
            dash(),
            notes,
        ];
        let style = if lease.lease.paused {
            Style::Warning
        } else {
            Style::Plain
        };
        return Row::new(cells).styled(style);
    };
    let duration = holder.lease_duration.duration();
    let style = match seen.silence.liveness(duration, now.boot) {
        Liveness::Expired => Style::Bad,
        Liveness::Late => Style::Warning,
        Liveness::Renews if lease.lease.paused => Style::Warning,
        Liveness::Renews => Style::Plain,
    };
    let token = lease.holder_token().unwrap_or(lease.lease.token);
    Row::new([
        name,
        state.to_owned(),
        shown.identity.to_string(),
        token.to_string(),
        now.since(holder.acquired_at).map_or("-".to_owned(), short),
        renewed(seen.silence, now.boot),
        short(duration),
        standby(lease),
        notes,
    ])
    .styled(style)
}

/// Returns the candidate that goes first after the holder, with its priority if it has one.
pub(super) fn standby(lease: &LeaseRecord) -> String {
    match (&lease.standby, priority(lease)) {
        (None, _) => "-".to_owned(),
        (Some(standby), None | Some(0)) => standby.to_string(),
        (Some(standby), Some(priority)) => format!("{standby} (priority {priority})"),
    }
}

fn priority(lease: &LeaseRecord) -> Option<u32> {
    lease.lease.standby.as_ref().map(|standby| standby.priority)
}

/// Returns when the last renewal was seen.
pub(super) fn renewed(silence: Silence, now: BootTime) -> String {
    let lasts = short(silence.lasts(now));
    match silence.renewal_seen {
        true => format!("{lasts} ago"),
        false => format!("> {lasts}"),
    }
}

fn notes(lease: &LeaseRecord) -> Vec<String> {
    let mut notes = Vec::new();
    if lease.lease.paused {
        notes.push("paused".to_owned());
    }
    if let Some(request) = &lease.request {
        notes.push(match lease.effect() {
            Some(RequestEffect::Effective) | None => self::request(request),
            Some(effect) => format!("{}, no effect: {}", self::request(request), because(effect)),
        });
    }
    if let Some(reservation) = lease
        .lease
        .reserved_for
        .as_ref()
        .filter(|reserved| lease.held_by().is_none() && !reserved.is_head_start())
    {
        notes.push(format!("reserved for {}", reservation.identity));
    }
    if let Some(token) = lease
        .holder_token()
        .filter(|token| *token != lease.lease.token)
    {
        notes.push(format!(
            "token raised to {} (the holder has {token})",
            lease.lease.token
        ));
    }
    notes
}

/// Describes a request in a few words.
pub(super) fn request(request: &RequestRecord) -> String {
    let kind = match &request.request {
        Ok(valid) => match &valid.kind {
            RequestKind::StepDown => format!("step-down of token {}", valid.token),
            RequestKind::Transfer(_) => {
                let to = request.to.as_deref().unwrap_or("?");
                format!("transfer of token {} to {to}", valid.token)
            }
        },
        Err(_) => "invalid request".to_owned(),
    };
    match &request.by {
        Some(by) => format!("{kind} requested by {by}"),
        None => format!("{kind} requested"),
    }
}

/// Describes why a request has no effect.
pub(super) fn because(effect: RequestEffect) -> String {
    match effect {
        RequestEffect::Effective => "the holder applies it".to_owned(),
        RequestEffect::OtherToken { named, leader } => {
            format!("it is for token {named}, and the holder has token {leader}")
        }
        RequestEffect::Free => {
            "nobody holds the lease, and the next acquisition removes it".to_owned()
        }
        RequestEffect::Invalid(why) => why.to_owned(),
    }
}

/// Formats a duration with at most two units, and with tenths of a second below ten seconds.
pub(super) fn short(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let two = |first: u64, unit: &str, second: u64, lesser: &str| match second {
        0 => format!("{first}{unit}"),
        second => format!("{first}{unit}{second}{lesser}"),
    };
    match seconds {
        0..10 if duration.subsec_millis() >= 50 || seconds == 0 => {
            format!("{:.1}s", duration.as_secs_f64())
        }
        0..60 => format!("{seconds}s"),
        60..3600 => two(seconds / 60, "m", seconds % 60, "s"),
        3600..86_400 => two(seconds / 3600, "h", seconds % 3600 / 60, "m"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3600, "h"),
    }
}

/// Returns a document as JSON, without the lists of its past.
pub(super) fn object(seen: &ObservedDocument, now: BootTime) -> Value {
    let name = &seen.entry.name;
    let lease = match &seen.entry.content {
        Content::Lease(lease) => lease,
        Content::Lock(_) => return json!({ "lease": name, "state": "lock" }),
        Content::Foreign(why) => {
            return json!({ "lease": name, "state": "foreign", "foreign": why });
        }
    };
    let holder = lease.held_by().zip(lease.holder.as_ref());
    let holder = holder.map(|(holder, shown)| {
        json!({
            "identity": shown.identity.as_str(),
            "token": lease.holder_token().map(|token| token.get()),
            "address": shown.address,
            "since": date(holder.acquired_at),
            "renewed_at": date(shown.renewed_at),
            "lease_duration_ms": holder.lease_duration.millis,
            "silent_ms": millis(seen.silence.lasts(now)),
            "renewal_seen": seen.silence.renewal_seen,
        })
    });
    let reserved = lease.lease.reserved_for.as_ref();
    let reserved = reserved.filter(|reserved| !reserved.is_head_start());
    let reserved = reserved.map(|reserved| {
        json!({ "identity": reserved.identity.as_str(), "for_ms": millis(reserved.duration) })
    });
    json!({
        "lease": name,
        "state": state(lease, seen.silence, now),
        "token": lease.lease.token.get(),
        "holder": holder,
        "paused": lease.lease.paused,
        "request": lease.request.as_ref().map(|request| request_object(request, lease.effect())),
        "reserved_for": reserved,
        "standby": holder.as_ref().and(lease.standby.as_ref()).map(|standby| standby.as_str()),
        "standby_priority": holder.and(priority(lease)),
    })
}

fn request_object(request: &RequestRecord, effect: Option<RequestEffect>) -> Value {
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
        "effective": effect == Some(RequestEffect::Effective),
        "why_not": effect.filter(|effect| *effect != RequestEffect::Effective).map(because),
    })
}

/// Returns a former holder as JSON.
pub(super) fn ended_object(ended: &PastHolder) -> Value {
    json!({
        "token": ended.token.map(|token| token.get()),
        "identity": ended.identity.as_ref().map(|identity| identity.as_str()),
        "acquired_at": date(ended.acquired_at),
        "ended_at": date(ended.ended_at),
        "reason": ended.reason,
    })
}

/// Returns an operator's action as JSON.
pub(super) fn action_object(action: &ActionRecord) -> Value {
    json!({
        "action": action.action,
        "token": action.token.map(|token| token.get()),
        "to": action.to,
        "by": action.by,
        "reason": action.reason,
        "at": date(action.at),
    })
}

/// Returns the table of former holders, newest first.
pub(super) fn history(lease: &LeaseRecord) -> Vec<Row> {
    let header = Row::new(["TOKEN", "IDENTITY", "LED FOR", "ENDED", "REASON"]);
    let ends = lease.history.iter().rev().map(|ended| {
        let led = ended.ended_at.0.checked_sub(ended.acquired_at.0);
        let led = led
            .and_then(|ms| u64::try_from(ms).ok())
            .map(Duration::from_millis);
        Row::new([
            ended
                .token
                .map_or("-".to_owned(), |token| token.to_string()),
            ended
                .identity
                .as_ref()
                .map_or("-".to_owned(), |identity| identity.to_string()),
            led.map_or("-".to_owned(), short),
            date(ended.ended_at),
            ended.reason.clone().unwrap_or_else(|| "-".to_owned()),
        ])
    });
    std::iter::once(header.styled(Style::Header))
        .chain(ends)
        .collect()
}

/// Returns the table of operators' actions, newest first.
pub(super) fn actions(lease: &LeaseRecord) -> Vec<Row> {
    let header = Row::new(["AT", "ACTION", "TOKEN", "BY", "REASON"]);
    let actions = lease.actions.iter().rev().map(|action| {
        let kind = match &action.to {
            Some(to) => format!("{} to {to}", action.action),
            None => action.action.clone(),
        };
        Row::new([
            date(action.at),
            kind,
            action
                .token
                .map_or("-".to_owned(), |token| token.to_string()),
            action.by.clone().unwrap_or_else(|| "-".to_owned()),
            action.reason.clone().unwrap_or_default(),
        ])
    });
    std::iter::once(header.styled(Style::Header))
        .chain(actions)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_at_most_two_units() {
        for (millis, text) in [
            (0, "0.0s"),
            (420, "0.4s"),
            (3_000, "3s"),
            (3_260, "3.3s"),
            (24_000, "24s"),
            (60_000, "1m"),
            (192_000, "3m12s"),
            (11_520_000, "3h12m"),
            (90_000_000, "1d1h"),
        ] {
            assert_eq!(short(Duration::from_millis(millis)), text);
        }
    }
}
