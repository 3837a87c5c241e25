//! Checks the effect of a write on a lease.

use std::collections::HashMap;
use std::time::Duration;

use bson::{Bson, Document};
use leasehold_core::election::{
    Claim, HistoryEntry, Identity, Lease, Operation, RESERVATION_MAX, WallMillis,
};
use leasehold_reference::election as reference;

use super::explained::difference;
use crate::state::{State, Stored, appended, changed};

/// The renewal interval that each claim may declare. A candidate declares an interval only while it
/// writes hints.
pub(super) type Intervals = HashMap<Claim, Option<Duration>>;

/// The fields that machines write.
const WRITTEN: [&str; 7] = [
    "token",
    "revision",
    "holder",
    "request",
    "reserved_for",
    "standby",
    "history",
];
/// The fields of a new lease.
const CREATED: [&str; 11] = [
    "_id",
    "schema",
    "kind",
    "token",
    "revision",
    "holder",
    "paused",
    "request",
    "reserved_for",
    "standby",
    "history",
];

/// Returns the claim that an operation acquires, and its renewal interval.
pub(super) fn interval(operation: &Operation) -> Option<(Claim, Option<Duration>)> {
    match operation {
        Operation::Acquire(acquisition) | Operation::TakeOver { acquisition, .. } => {
            Some((acquisition.claim, acquisition.renew_interval.map(in_millis)))
        }
        _ => None,
    }
}

pub(super) fn effect(
    (operation, by): (&Operation, &Identity),
    intervals: &Intervals,
    before: &Stored,
    after: &Stored,
) -> Result<(), String> {
    let mut expected = match &before.state {
        State::Missing => None,
        State::Lease(lease) => Some((**lease).clone()),
        State::Lock(_) | State::Foreign => {
            return Err("the document before is not recognized".to_owned());
        }
    };
    let State::Lease(actual) = &after.state else {
        return Err("the document after is not a lease".to_owned());
    };
    // Take the acquisition time from the document, because it is informational and comes from the
    // candidate's wall clock.
    let holder = actual.holder.as_ref();
    let at = holder.map_or(WallMillis::default(), |holder| holder.acquired_at);
    if !reference::write(&mut expected, by, at, operation) {
        return Err("its filter does not match the document before".to_owned());
    }
    let mut expected = expected.ok_or("its update removes the document")?;
    as_stored(&mut expected);
    redeclared(&mut expected, actual, operation, intervals);
    if expected != **actual {
        let expected = State::Lease(Box::new(expected));
        let difference = difference(&expected, &after.state);
        return Err(format!(
            "its update produces a different document: {difference}"
        ));
    }
    let is_new = matches!(operation, Operation::Create { .. });
    let allowed: &[&str] = if is_new { &CREATED } else { &WRITTEN };
    let other = changed(before, after)
        .into_iter()
        .find(|field| !allowed.contains(field));
    if let Some(field) = other {
        return Err(format!("it does not write the field {field}"));
    }
    holder_token(actual, after)?;
    ended(reference::ends(operation), before, after)
}

/// Rounds durations as they are stored in the document.
fn as_stored(lease: &mut Lease) {
    if let Some(reservation) = &mut lease.reserved_for {
        reservation.duration = in_millis(reservation.duration).min(RESERVATION_MAX);
    }
    if let Some(holder) = &mut lease.holder {
        holder.renew_interval = holder.renew_interval.map(in_millis);
    }
}

fn in_millis(duration: Duration) -> Duration {
    Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

/// Allows acquisitions and renewals to add or remove the declared renewal interval.
fn redeclared(expected: &mut Lease, actual: &Lease, operation: &Operation, intervals: &Intervals) {
    let declares = matches!(
        operation,
        Operation::Acquire(_) | Operation::TakeOver { .. } | Operation::Renew { .. }
    );
    let (true, Some(expected), Some(actual)) = (declares, &mut expected.holder, &actual.holder)
    else {
        return;
    };
    let own = intervals.get(&actual.claim).copied().flatten();
    if actual.renew_interval.is_none() || actual.renew_interval == own {
        expected.renew_interval = actual.renew_interval;
    }
}

/// Checks the holder's token, which is informational. The holder's token stays the token of the
/// acquisition, even if an operator raises the lease's token.
fn holder_token(lease: &Lease, after: &Stored) -> Result<(), String> {
    let Some(token) = after
        .fields
        .get_document("holder")
        .ok()
        .and_then(|holder| holder.get("token"))
    else {
        return Ok(());
    };
    match token {
        Bson::Int64(token) if *token <= lease.token.get() => Ok(()),
        other => Err(format!("the token of the holder is {other}")),
    }
}

/// Checks that the history gained exactly the claim that ended, if any.
fn ended(entry: Option<&HistoryEntry>, before: &Stored, after: &Stored) -> Result<(), String> {
    let added = appended(before, after, "history").ok_or("the history was rewritten")?;
    let (entry, added) = match (entry, added) {
        (None, []) => return Ok(()),
        (Some(entry), [Bson::Document(added)]) => (entry, added),
        _ => {
            let number = added.len();
            return Err(format!("{number} entries were added to the history"));
        }
    };
    let HistoryEntry {
        token,
        identity,
        acquired_at,
        reason,
    } = entry;
    let at = |added: &Document| {
        added
            .get_datetime("acquired_at")
            .map(|at| at.timestamp_millis())
            .ok()
    };
    let same = added.get_i64("token").ok() == Some(token.get())
        && added.get_str("identity").ok() == Some(identity.as_str())
        && at(added) == Some(acquired_at.0)
        && added.get_str("reason").ok() == Some(reason.as_str());
    match same {
        true => Ok(()),
        false => Err(format!("the history has {added} instead of {entry:?}")),
    }
}
