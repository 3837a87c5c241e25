//! `leasehold describe`: one lease with its candidates, its history and its standing request.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

use super::arguments::DescribeArgs;
use super::leases::await_renewals;
use super::observed::{Followed, Liveness, ObservedDocument};
use super::render::{self, ineffective, renewed, short};
use super::{OperatorError, Session};
use crate::table::{color, text};
use leasehold_cli::answer;
use leasehold_clock as clock;
use leasehold_core::election::{BootTime, ResourceName};
use leasehold_host::signals::Exit;
use leasehold_host::{CommandError, exit};
use leasehold_mongodb::randomness::KernelRandomness;
use leasehold_mongodb::store::mongo::operators::{Acted, ActionId, LeaseRecord, Present, Scope};
use leasehold_mongodb::store::{Failure, StoreInfo};
use leasehold_status::render::date;

/// Time for candidates to answer. Candidates with a change stream take milliseconds; the others
/// poll, by default each second.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(3);

pub(super) async fn run(session: &Session, args: DescribeArgs) -> Result<Exit, CommandError> {
    let (name, scope) = (&args.name, Scope::One(args.name.clone()));
    let mut followed = session.follow(scope.clone(), "read the lease").await?;
    let entry = followed.observed.one().map(|seen| &seen.entry);
    session.lease(name, entry).await?;
    let present = match args.candidates {
        true => Some(candidates(session, &mut followed, name, |_| false).await?),
        false => None,
    };
    await_renewals(session, &mut followed, &scope, args.observe.observe).await;
    let Some((seen, lease)) = followed.observed.lease() else {
        // After the first read, the lease was deleted or replaced by another document.
        return Err(session.missing(name).await.into());
    };
    let description = LeaseDescription {
        store: session.collection.info().unwrap_or_default(),
        seen,
        lease,
        present,
        now: clock::boot_now(),
    };
    let described = match session.json {
        true => format!("{:#}\n", description.object()),
        false => description.text(),
    };
    answer(described.as_bytes())?;
    Ok(exit::DONE.into())
}

/// Calls the roll. Returns the candidates that have answered when `complete` is true of them, or
/// after [`ANSWER_MAX`].
pub(super) async fn candidates(
    session: &Session,
    followed: &mut Followed,
    name: &ResourceName,
    complete: impl Fn(&[Present]) -> bool,
) -> Result<Vec<Present>, OperatorError> {
    let call = ActionId::random(&mut KernelRandomness);
    let called = session.collection.call_roll(name, call).await;
    if called.outcome != Acted::Applied(()) {
        let changed = || Failure::new("the document is no longer a lease", "");
        return Err(OperatorError::Store {
            doing: "call the roll of candidates",
            failure: called.failure.unwrap_or_else(changed),
        });
    }
    let until = (clock::boot_now() + ANSWER_MAX).min(session.deadline);
    let mut present: Vec<Present> = Vec::new();
    let mut called_now = false;
    while !complete(&present) && followed.advance(until).await {
        let lease = followed.observed.lease();
        let Some(roll_call) = lease.and_then(|(_, lease)| lease.roll_call.as_ref()) else {
            continue;
        };
        // Another operator's roll call may replace this one. Once this roll call was seen, answers
        // to a later one count too.
        called_now |= roll_call.id == call.bytes();
        if called_now {
            let is_new = |candidate: &&Present| !present.contains(candidate);
            let new: Vec<_> = roll_call.present.iter().filter(is_new).cloned().collect();
            present.extend(new);
        }
    }
    // A roll call that is not removed is harmless, because the next one replaces it.
    let _ = session.collection.end_roll_call(name, call).await;
    present.sort_by(|a, b| a.identity.cmp(&b.identity));
    Ok(present)
}

pub(super) fn names(present: &[Present]) -> String {
    let names = present.iter().map(|candidate| match candidate.healthy {
        Some(false) => format!("{} (unhealthy)", candidate.identity),
        Some(true) | None => candidate.identity.to_string(),
    });
    match present {
        [] => "none".to_owned(),
        _ => names.collect::<Vec<_>>().join(", "),
    }
}

struct LeaseDescription<'a> {
    store: StoreInfo,
    seen: &'a ObservedDocument,
    lease: &'a LeaseRecord,
    /// The candidates, if they were asked.
    present: Option<Vec<Present>>,
    now: BootTime,
}

impl LeaseDescription<'_> {
    fn object(&self) -> Value {
        let mut object = render::object(self.seen, self.now);
        object["store"] = render::store_object(&self.store);
        if let Some(present) = &self.present {
            let candidate = |it: &Present| {
                let identity = it.identity.as_str();
                json!({ "identity": identity, "version": it.version, "healthy": it.healthy })
            };
            object["candidates"] = present.iter().map(candidate).collect();
        }
        render::add_past(&mut object, self.lease);
        object
    }

    fn text(&self) -> String {
        let (store, lease) = (&self.store, self.lease);
        let (database, collection) = (&store.database, &store.collection);
        let place = format!("{database}.{collection}, {}", store.describe());
        let mut fields = vec![("Lease", self.seen.entry.name.clone()), ("Store", place)];
        fields.extend(self.holder());
        fields.push(("Token", lease.lease.token.to_string()));
        if let Some(present) = &self.present {
            fields.push(("Present", names(present)));
        }
        if lease.held_by().is_some() {
            fields.push(("Standby", render::standby(lease)));
        }
        fields.push(("Paused", paused(lease)));
        fields.push(("Request", request(lease)));
        if let Some(reserved) = render::reserved(lease).filter(|_| lease.held_by().is_none()) {
            let (to, wait) = (&reserved.identity, short(reserved.duration));
            let reserved = format!("for {to}; other candidates wait for {wait}");
            fields.push(("Reserved", reserved));
        }
        let mut described = String::new();
        for (name, value) in fields {
            let _ = writeln!(described, "{:<10} {value}", format!("{name}:"));
        }
        for (heading, rows) in [
            ("History, newest first", render::history(lease)),
            ("Actions of operators, newest first", render::actions(lease)),
        ] {
            let _ = match rows.len() {
                1 => writeln!(described, "\n{heading}: none"),
                _ => write!(described, "\n{heading}:\n{}", text(&rows, color())),
            };
        }
        described
    }

    fn holder(&self) -> Vec<(&'static str, String)> {
        let Some((holder, shown)) = self.lease.held_by().zip(self.lease.holder.as_ref()) else {
            return vec![("Holder", "none".to_owned())];
        };
        let address = shown.address.as_ref();
        let address = address.map_or_else(String::new, |address| format!(" at {address}"));
        let (silence, now) = (self.seen.silence, self.now);
        let lasts = holder.lease_duration.duration();
        let duration = short(lasts);
        let renewal = match silence.liveness(lasts, now) {
            Liveness::Expired => ": expired, another candidate may take over".to_owned(),
            Liveness::Late => format!(": late; it expires {duration} after the last one"),
            Liveness::Renews if silence.renewal_seen => String::new(),
            Liveness::Renews => ", since this command started".to_owned(),
        };
        let (identity, since) = (&shown.identity, date(holder.acquired_at));
        let token = self.lease.holder_token().unwrap_or(self.lease.lease.token);
        let holder = format!("{identity}{address}, token {token}, since {since} (by its clock)");
        let duration = format!("{duration} (lease duration that the holder declared)");
        vec![
            ("Holder", holder),
            ("Renewed", renewed(silence, now) + &renewal),
            ("Duration", duration),
        ]
    }
}

/// Returns a reason as the end of a line.
fn ending(reason: Option<&String>) -> String {
    reason.map_or_else(String::new, |reason| format!(": {reason}"))
}

fn paused(lease: &LeaseRecord) -> String {
    if !lease.lease.paused {
        return "no".to_owned();
    }
    let mut latest = lease.actions.iter().rev();
    let Some(pause) = latest.find(|action| action.action == "pause") else {
        return "yes".to_owned();
    };
    let (by, at) = (pause.by.as_deref().unwrap_or("?"), date(pause.at));
    format!("yes, by {by} at {at}{}", ending(pause.reason.as_ref()))
}

fn request(lease: &LeaseRecord) -> String {
    let Some(request) = &lease.request else {
        return "none".to_owned();
    };
    let effect = match ineffective(lease) {
        None => "the holder applies it".to_owned(),
        Some(why) => format!("no effect: {why}"),
    };
    format!(
        "{} at {}{}; {effect}",
        render::request(request),
        date(request.at),
        ending(request.reason.as_ref())
    )
}
