//! Output of `leasehold locks`.

use serde_json::{Value, json};

use crate::operators::render::{entry_object, or_dash, table};
use crate::table::{Row, text};
use leasehold_core::lock::Entry;
use leasehold_mongodb::store::mongo::operators::{CollectionEntry, Content};
use leasehold_status::render::date;

/// Renders the locks as a table for humans, or as one JSON list.
pub(super) fn listing(locks: &[CollectionEntry], json: bool) -> String {
    if json {
        return format!("{:#}\n", locks.iter().map(object).collect::<Value>());
    }
    if locks.is_empty() {
        return "no locks\n".to_owned();
    }
    let header = ["LOCK", "TOKEN", "STATE", "MODE", "IDENTITY", "SINCE"];
    text(&table(header, locks.iter().flat_map(rows)), false)
}

/// Returns a row for each holder and waiter of a lock, or one row for the lock.
fn rows(lock: &CollectionEntry) -> Vec<Row> {
    let row = |token: String, state: &str, slots: u32, entry: Option<&Entry>| {
        Row::new([
            lock.name.clone(),
            token,
            state.to_owned(),
            or_dash(entry.map(|entry| mode(entry, slots))),
            or_dash(entry.map(|entry| &entry.owner.identity)),
            or_dash(entry.map(|entry| date(entry.owner.acquired_at))),
        ])
    };
    match &lock.content {
        Content::Lock(record) => {
            let document = &record.lock;
            let (newest, slots) = (document.token, document.slots);
            let holders = document.holders.iter().map(|entry| (state(entry), entry));
            let entries = holders.chain(document.queue.iter().map(|entry| ("waits", entry)));
            let entries = entries.map(|(state, entry)| {
                let token = entry.token.unwrap_or(newest).to_string();
                row(token, state, slots, Some(entry))
            });
            let rows: Vec<_> = entries.collect();
            match rows.is_empty() {
                true => vec![row(newest.to_string(), "free", slots, None)],
                false => rows,
            }
        }
        Content::Foreign(why) => {
            vec![row("-".to_owned(), &format!("not a lock: {why}"), 0, None)]
        }
        // Not in the scope.
        Content::Lease(_) => Vec::new(),
    }
}

fn state(holder: &Entry) -> &'static str {
    match holder.is_confirmed() {
        true if holder.work_done && holder.min_hold.is_zero() => "ended",
        true if holder.work_done => "kept",
        true => "held",
        false => "granted",
    }
}

fn mode(entry: &Entry, slots: u32) -> String {
    match (slots, entry.slot) {
        (0, _) => entry.mode.as_str().to_owned(),
        (slots, Some(slot)) => format!("slot {slot} of {slots}"),
        (slots, None) => format!("one of {slots} slots"),
    }
}

fn object(lock: &CollectionEntry) -> Value {
    match &lock.content {
        Content::Lock(record) => {
            let document = &record.lock;
            let successes = document.successes.iter();
            let successes = successes
                .map(|success| json!({ "key": success.key.as_str(), "at": date(success.at) }));
            json!({
                "lock": lock.name,
                "token": document.token.get(),
                "slots": document.slots,
                "holders": document.holders.iter().map(entry_object).collect::<Value>(),
                "queue": document.queue.iter().map(entry_object).collect::<Value>(),
                "successes": successes.collect::<Value>(),
            })
        }
        Content::Foreign(why) => json!({ "lock": lock.name, "foreign": why }),
        Content::Lease(_) => json!({ "lock": lock.name }),
    }
}
