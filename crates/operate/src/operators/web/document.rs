//! Documents as the page receives them.

use serde::Serialize;
use serde_json::{Value, json};

use super::super::observed::{ObservedDocument, Silence};
use super::super::render;
use super::board::AnsweredRollCall;
use leasehold_core::election::BootTime;
use leasehold_core::lock::Entry;
use leasehold_host::log::millis;
use leasehold_mongodb::store::mongo::operators::{Content, LockRecord};

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
            render::add_past(&mut object, lease);
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
    let claims = |entries: &[Entry]| -> Value {
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

fn claim(seen: &ObservedDocument, entry: &Entry, now: BootTime) -> Value {
    let silence = seen.claims.get(&entry.claim);
    let mut object = render::entry_object(entry);
    object["silent_ms"] = silence.map(|silence| millis(silence.lasts(now))).into();
    object["renewal_seen"] = silence.is_some_and(|silence| silence.renewal_seen).into();
    object
}
