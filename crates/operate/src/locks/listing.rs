//! Output of `leasehold locks`.

use crate::table::{Row, text};
use leasehold_core::lock::{Entry, FoundLock, Success};
use leasehold_mongodb::store::mongo::lock::Listed;
use leasehold_status::render::date;

/// Renders the locks as a table for humans, or as one JSON list.
pub(super) fn listing(locks: &[Listed], json: bool) -> String {
    if json {
        let list: Vec<_> = locks.iter().map(object).collect();
        return format!("{:#}\n", serde_json::Value::from(list));
    }
    if locks.is_empty() {
        return "no locks\n".to_owned();
    }
    let mut rows = vec![["LOCK", "TOKEN", "STATE", "MODE", "IDENTITY", "SINCE"].map(str::to_owned)];
    for lock in locks {
        match &lock.found {
            FoundLock::Lock(document) => {
                let first = rows.len();
                let token = document.token.to_string();
                let row = |state: &str, entry: Option<&Entry>| {
                    [
                        lock.name.clone(),
                        entry
                            .and_then(|e| e.token)
                            .map_or_else(|| token.clone(), |token| token.to_string()),
                        state.to_owned(),
                        entry.map_or("-".to_owned(), |e| mode(e, document.slots)),
                        entry.map_or("-".to_owned(), |e| e.owner.identity.to_string()),
                        entry.map_or("-".to_owned(), |e| date(e.owner.acquired_at)),
                    ]
                };
                for entry in &document.holders {
                    let state = match entry.is_confirmed() {
                        true if entry.work_done && entry.min_hold.is_zero() => "ended",
                        true if entry.work_done => "kept",
                        true => "held",
                        false => "granted",
                    };
                    rows.push(row(state, Some(entry)));
                }
                for entry in &document.queue {
                    rows.push(row("waits", Some(entry)));
                }
                if rows.len() == first {
                    rows.push(row("free", None));
                }
            }
            FoundLock::Foreign(why) => {
                let state = format!("not a lock: {why}");
                let dash = || "-".to_owned();
                rows.push([lock.name.clone(), dash(), state, dash(), dash(), dash()]);
            }
            // Deleted during the listing.
            FoundLock::Missing => {}
        }
    }
    let rows: Vec<_> = rows.into_iter().map(Row::new).collect();
    text(&rows, false)
}

fn mode(entry: &Entry, slots: u32) -> String {
    match slots {
        0 => entry.mode.as_str().to_owned(),
        slots => match entry.slot {
            Some(slot) => format!("slot {slot} of {slots}"),
            None => format!("one of {slots} slots"),
        },
    }
}

fn object(lock: &Listed) -> serde_json::Value {
    match &lock.found {
        FoundLock::Lock(document) => {
            let entries = |list: &[Entry]| -> Vec<_> { list.iter().map(entry).collect() };
            serde_json::json!({
                "lock": lock.name,
                "token": document.token.get(),
                "slots": document.slots,
                "holders": entries(&document.holders),
                "queue": entries(&document.queue),
                "successes": document.successes.iter().map(success).collect::<Vec<_>>(),
            })
        }
        FoundLock::Foreign(why) => serde_json::json!({ "lock": lock.name, "foreign": why }),
        FoundLock::Missing => serde_json::json!({ "lock": lock.name }),
    }
}

fn success(success: &Success) -> serde_json::Value {
    serde_json::json!({ "key": success.key.as_str(), "at": date(success.at) })
}

fn entry(entry: &Entry) -> serde_json::Value {
    let at_least_ms = u64::try_from(entry.min_hold.as_millis()).unwrap_or(u64::MAX);
    serde_json::json!({
        "identity": entry.owner.identity.as_str(),
        "mode": entry.mode.as_str(),
        "token": entry.token.map(|token| token.get()),
        "slot": entry.slot,
        "at_least_ms": at_least_ms,
        "over": entry.work_done,
        "since": date(entry.owner.acquired_at),
        "renewed_at": date(entry.owner.renewed_at),
        "lease_duration_ms": entry.lease_duration.millis,
    })
}
