//! Documents as the page receives them.

use serde_json::{Value, json};

use super::super::observed::Seen;
use super::super::render;
use crate::election::BootTime;
use crate::lock;
use crate::log::millis;
use crate::publish::render::date;
use crate::store::mongo::operators::{Content, LockRecord};

/// Maximum number of holders, and of waiters, of a lock in the list. All are in its details.
const CLAIMS_MAX: usize = 8;

/// Returns a document without its past.
pub(super) fn row(seen: &Seen, now: BootTime) -> Value {
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

/// Returns a document with its past.
pub(super) fn details(seen: &Seen, now: BootTime) -> Value {
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
            object
        }
        Content::Foreign(_) => row(seen, now),
    }
}

fn named(seen: &Seen, kind: &str, mut object: Value) -> Value {
    object["kind"] = kind.into();
    object["name"] = seen.entry.name.as_str().into();
    object
}

fn of_lock(seen: &Seen, record: &LockRecord, max: usize, now: BootTime) -> Value {
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

fn claim(seen: &Seen, entry: &lock::Entry, now: BootTime) -> Value {
    let silence = seen.claims.get(&entry.claim);
    json!({
        "identity": entry.identity.as_str(),
        "mode": entry.mode.as_str(),
        "token": entry.token.map(|token| token.get()),
        "since": date(entry.acquired_at),
        "lease_duration_ms": entry.lease_duration.millis,
        "silent_ms": silence.map(|silence| millis(silence.lasts(now))),
        "renewal_seen": silence.is_some_and(|silence| silence.renewal_seen),
    })
}
