//! Checks the effect of a write on a lock.

use std::time::Duration;

use bson::Bson;
use leasehold_core::election::{Identity, WallMillis};
use leasehold_core::lock::{
    Entry, FoundLock, LockDocument, LockOperation, LockOutcome, MIN_HOLD_MAX, WorkKey,
};
use leasehold_reference::lock::{self as reference, By, Performed};

use super::explained::{difference, entries};
use crate::state::{State, Stored, appended, changed};

/// The fields that machines write.
const WRITTEN: [&str; 10] = [
    "token",
    "slots",
    "slots_before",
    "slot_owners",
    "holders",
    "queue",
    "successes",
    "history",
    "granted",
    "next",
];
/// The fields of a new lock.
const CREATED: [&str; 4] = ["_id", "schema", "kind", "token"];

pub(super) fn effect(
    (operation, by): (&LockOperation, &Identity),
    before: &Stored,
    after: &Stored,
) -> Result<(), String> {
    let mut expected = match &before.state {
        State::Missing => FoundLock::Missing,
        State::Lock(lock) => FoundLock::Lock((**lock).clone()),
        State::Lease(_) | State::Foreign => {
            return Err("the document before is not recognized".to_owned());
        }
    };
    let State::Lock(actual) = &after.state else {
        return Err("the document after is not a lock".to_owned());
    };
    let by = By {
        identity: by,
        at: sent_at(operation, actual),
        store_now: recorded_at(operation, actual),
    };
    let performed = reference::apply(&mut expected, by, operation);
    if !matches!(performed.outcome, LockOutcome::Applied(_)) {
        return Err("its filter does not match the document before".to_owned());
    }
    let FoundLock::Lock(lock) = &mut expected else {
        return Err("its update removes the lock".to_owned());
    };
    for entry in lock.holders.iter_mut().chain(&mut lock.queue) {
        entry.min_hold = in_millis(entry.min_hold);
    }
    lock.store_now = WallMillis::default();
    if let State::Lock(before) = &before.state {
        date_grants(lock, before, actual);
    }
    let lock = lock.clone();
    let expected = State::Lock(Box::new(lock.clone()));
    if expected != after.state {
        let difference = difference(&expected, &after.state);
        return Err(format!(
            "its update produces a different document: {difference}"
        ));
    }
    let is_new = matches!(operation, LockOperation::Create { .. });
    let allowed: &[&str] = if is_new { &CREATED } else { &WRITTEN };
    let other = changed(before, after)
        .into_iter()
        .find(|field| !allowed.contains(field));
    if let Some(field) = other {
        return Err(format!("it does not write the field {field}"));
    }
    ended(&performed, before, after)?;
    woken(operation, &performed, &lock, before, after)
}

/// Returns the time that the write set in its entry. The time is informational and comes from the
/// sender's wall clock.
fn sent_at(operation: &LockOperation, after: &LockDocument) -> WallMillis {
    let claim = match operation {
        LockOperation::Join { entry, .. } => Some(entry.claim),
        LockOperation::Renew { claim, .. } | LockOperation::Keep { claim, .. } => Some(*claim),
        LockOperation::Evict { me, .. } => me.map(|me| me.claim),
        _ => None,
    };
    let entry = entries(after).find(|entry| Some(entry.claim) == claim);
    entry.map_or(WallMillis::default(), |entry| entry.owner.renewed_at)
}

/// Copies the dates of the grants between `before` and `actual` into `expected`. The dates are
/// informational: each is the server's time, or the time of the join if an older version granted
/// the lock.
pub(super) fn date_grants(
    expected: &mut LockDocument,
    before: &LockDocument,
    actual: &LockDocument,
) {
    for entry in &mut expected.holders {
        let claim = entry.claim;
        if before.holders.iter().any(|held| held.claim == claim) {
            continue;
        }
        if let Some(granted) = actual.holders.iter().find(|held| held.claim == claim) {
            entry.owner.acquired_at = granted.owner.acquired_at;
        }
    }
}

/// Returns the time, on MongoDB's clock, at which the write recorded that the work succeeded.
fn recorded_at(operation: &LockOperation, after: &LockDocument) -> WallMillis {
    let key: Option<&WorkKey> = match operation {
        LockOperation::Keep { success, .. } | LockOperation::Leave { success, .. } => {
            success.as_ref()
        }
        _ => None,
    };
    let success = after
        .successes
        .iter()
        .find(|success| Some(&success.key) == key);
    success.map_or(WallMillis::default(), |success| success.at)
}

/// Rounds a duration up, as it is stored in the document.
fn in_millis(duration: Duration) -> Duration {
    let millis = duration.as_nanos().div_ceil(1_000_000);
    let millis = Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
    millis.min(MIN_HOLD_MAX)
}

/// Checks that the history gained exactly the ended entries that had a token.
fn ended(performed: &Performed, before: &Stored, after: &Stored) -> Result<(), String> {
    let added = appended(before, after, "history").ok_or("the history was rewritten")?;
    let as_expected = performed.ended.len() == added.len()
        && performed.ended.iter().zip(added).all(|(ended, added)| {
            let token = ended.entry.token.map(|token| token.get());
            added.as_document().is_some_and(|added| {
                added.get_i64("token").ok() == token
                    && added.get_str("reason").ok() == Some(ended.ending.as_str())
            })
        });
    match as_expected {
        true => Ok(()),
        false => Err(format!(
            "the history gained {added:?} instead of {:?}",
            performed.ended
        )),
    }
}

/// Checks the fields `granted` and `next`, which name the granted claims and the next claim.
/// Changes of these fields wake contenders through change streams.
fn woken(
    operation: &LockOperation,
    performed: &Performed,
    lock: &LockDocument,
    before: &Stored,
    after: &Stored,
) -> Result<(), String> {
    let moves = !matches!(
        operation,
        LockOperation::Create { .. } | LockOperation::Renew { .. } | LockOperation::Keep { .. }
    );
    let holders = lock.holders.iter().zip(after.list("holders"));
    let is_granted = |entry: &Entry| {
        let mut granted = performed.granted.iter();
        granted.any(|(claim, _)| *claim == entry.claim)
    };
    let granted: Vec<_> = holders
        .filter(|(entry, _)| is_granted(entry))
        .map(|(entry, fields)| grant_text(entry, fields))
        .collect();
    let granted = match granted.as_slice() {
        [] => text(before.fields.get("granted")),
        granted => granted.join(" "),
    };
    let next = match (moves, lock.queue.first()) {
        (true, Some(head)) => known_text(after.list("queue").first(), "wake", head.claim),
        (true, None) => String::new(),
        (false, _) => text(before.fields.get("next")),
    };
    for (field, expected) in [("granted", granted), ("next", next)] {
        let actual = text(after.fields.get(field));
        if actual != expected {
            return Err(format!(
                "the field {field} is {actual:?} instead of {expected:?}"
            ));
        }
    }
    Ok(())
}

fn text(field: Option<&Bson>) -> String {
    field.and_then(Bson::as_str).unwrap_or_default().to_owned()
}

/// Returns the text of an id, or an empty string if the entry's version did not store the field.
fn known_text(entry: Option<&Bson>, field: &str, id: impl ToString) -> String {
    let fields = entry.and_then(Bson::as_document);
    let is_stored = fields.is_some_and(|fields| fields.get_str(field).is_ok());
    if is_stored {
        id.to_string()
    } else {
        String::new()
    }
}

fn grant_text(entry: &Entry, fields: &Bson) -> String {
    let claim = known_text(Some(fields), "wake", entry.claim);
    let revision = known_text(Some(fields), "revision_text", entry.revision);
    let token = entry.token.map_or(String::new(), |token| token.to_string());
    let slot = entry.slot.map_or(String::new(), |slot| format!("#{slot}"));
    format!("{claim}={token}@{revision}{slot}")
}
