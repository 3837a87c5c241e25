//! Documents as the page receives them.

use serde::Serialize;
use serde_json::{Value, json};

use super::super::observed::{ObservedDocument, Silence};
use super::super::render;
use super::board::AnsweredRollCall;
use leasehold_core::election::BootTime;
use leasehold_core::lock;
use leasehold_host::log::millis;
use leasehold_mongodb::store::mongo::operators::{Content, LockRecord};
use leasehold_status::render::date;

/// Maximum number of holders, and of waiters, of a lock in the list. All are in its details.
const CLAIMS_MAX: usize = 8;

/// Returns a document without its past.
pub(super) fn row(seen: &ObservedDocument, now: BootTime) -> Value {
    match &seen.entry.content {
        Content::Lock(lock) => of_lock(seen, lock, CLAIMS_MAX, now),
        Content::Lease(lease) => {
            let mut object = named(seen, "lease", render::object(seen, now));
            object["last"] = lease.history.last().map(render::ended_object).into();
            object
        }
        Content::Foreign(_) => named(seen, "foreign", render::object(seen, now)),
    }
}

/// The time without a renewal of one holder, in milliseconds, and true if the last one was seen.
#[derive(Debug, Serialize)]
pub(super) struct RenewalAge(u64, bool);

/// Returns what a renewal changes in the list: the times without a renewal of the holders in
/// [`row`]. The times of waiters are only in the details.
pub(super) fn renewal(seen: &ObservedDocument, now: BootTime) -> Vec<RenewalAge> {
    let renewed = |silence: &Silence| RenewalAge(millis(silence.lasts(now)), silence.renewal_seen);
    let Content::Lock(record) = &seen.entry.content else {
        return vec![renewed(&seen.silence)];
    };
    let holders = record.lock.holders.iter().take(CLAIMS_MAX);
    let silences = holders.filter_map(|holder| seen.claims.get(&holder.claim));
    silences.map(renewed).collect()
}

/// Returns true if two states of a lock differ in renewals at most.
pub(super) fn differs_by_renewal(before: &LockRecord, after: &LockRecord) -> bool {
    let mut renewed = before.clone();
    let entries = renewed.lock.holders.iter_mut();
    let entries = entries.chain(&mut renewed.lock.queue);
    let after_entries = after.lock.holders.iter().chain(&after.lock.queue);
    for (entry, after) in entries.zip(after_entries) {
        entry.revision = after.revision;
        entry.owner.renewed_at = after.owner.renewed_at;
    }
    renewed == *after
}

/// Returns a document with its past, and the last roll call of its candidates.
pub(super) fn details(
    seen: &ObservedDocument,
    roll_call: Option<&AnsweredRollCall>,
    now: BootTime,
) -> Value {
    match &seen.entry.content {
        Content::Lock(lock) => {
            let mut object = of_lock(seen, lock, usize::MAX, now);
            object["history"] = lock.history.iter().map(render::ended_object).collect();
            object
        }
        Content::Lease(lease) => {
            let mut object = row(seen, now);
            object["history"] = lease.history.iter().map(render::ended_object).collect();
            object["actions"] = lease.actions.iter().map(render::action_object).collect();
            if let Some(AnsweredRollCall { roll_call, at }) = roll_call {
                let present = roll_call.present.iter();
                let mut identities: Vec<_> = present.map(|one| one.identity.as_str()).collect();
                identities.sort_unstable();
                object["candidates"] = identities.into();
                object["answered_ms"] = millis(now.since(*at)).into();
            }
            object
        }
        Content::Foreign(_) => row(seen, now),
    }
}

fn named(seen: &ObservedDocument, kind: &str, mut object: Value) -> Value {
    object["kind"] = kind.into();
    object["name"] = seen.entry.name.as_str().into();
    object
}

fn of_lock(seen: &ObservedDocument, record: &LockRecord, max: usize, now: BootTime) -> Value {
    let lock = &record.lock;
    let claims = |entries: &[lock::Entry]| -> Vec<Value> {
        let entries = entries.iter().take(max);
        entries.map(|entry| claim(seen, entry, now)).collect()
    };
    let object = json!({
        "state": if lock.holders.is_empty() { "free" } else { "held" },
        "token": lock.token.get(),
        "slots": lock.slots,
        "holders": claims(&lock.holders),
        "holders_total": lock.holders.len(),
        "queue": claims(&lock.queue),
        "queue_total": lock.queue.len(),
        "last": record.history.last().map(render::ended_object),
    });
    named(seen, "lock", object)
}

fn claim(seen: &ObservedDocument, entry: &lock::Entry, now: BootTime) -> Value {
    let silence = seen.claims.get(&entry.claim);
    json!({
        "identity": entry.owner.identity.as_str(),
        "mode": entry.mode.as_str(),
        "token": entry.token.map(|token| token.get()),
        "over": entry.work_done,
        "at_least_ms": millis(entry.min_hold),
        "since": date(entry.owner.acquired_at),
        "lease_duration_ms": entry.lease_duration.millis,
        "silent_ms": silence.map(|silence| millis(silence.lasts(now))),
        "renewal_seen": silence.is_some_and(|silence| silence.renewal_seen),
    })
}
