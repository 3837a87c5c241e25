//! Renders documents for browsers: all documents as server-sent events (`GET /events`), or the
//! details of a single document.
//!
//! A stream queues nothing. Each event is made from the newest documents when the connection is
//! writable, so a slow browser skips states.

use std::sync::Arc;
use std::time::Duration;

use hyper::HeaderMap;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

use super::super::observed::{ObservedDocument, Silence, wall};
use super::super::render;
use super::super::roll_call::{Roll, names};
use super::board::{Link, Position, Snapshot};
use super::site::Shared;
use leasehold_clock::boot_now;
use leasehold_core::election::{BootTime, WallMillis};
use leasehold_core::lock::Entry;
use leasehold_host::log::millis;
use leasehold_http::{Feed, StreamPlace};
use leasehold_mongodb::store::Failure;
use leasehold_mongodb::store::mongo::PastHolder;
use leasehold_mongodb::store::mongo::operators::{Content, LockRecord};
use leasehold_status::dates::date;

/// Minimum time between two events about changes, once a browser has all documents.
const BATCH: Duration = Duration::from_millis(100);
/// Maximum time between two events. After three missing events, the page treats the connection as
/// lost.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// The list contains at most this many holders and this many waiters of each lock; the lock's
/// details contain all of them.
const CLAIMS_MAX: usize = 8;

/// A stream of events to one browser. The stream ends when the visitor's permission ends.
pub(super) struct Events {
    shared: Arc<Shared>,
    headers: HeaderMap,
    board: watch::Receiver<Snapshot>,
    place: StreamPlace,
    position: Position,
    written: Option<LastFrame>,
    ended: bool,
}

struct LastFrame {
    at: BootTime,
    link: Link,
    complete: bool,
}

impl Feed for Events {
    async fn next(&mut self) -> Option<String> {
        while !self.ended {
            let now = boot_now();
            let due = self.due(now);
            if due <= now {
                let is_permitted = self.shared.access.still_permits(&self.headers).await;
                return is_permitted.then(|| self.event(boot_now()));
            }
            tokio::select! {
                changed = self.board.changed() => self.ended = changed.is_err(),
                () = sleep(due.since(now)) => {}
                () = self.place.closing() => {
                    self.ended = true;
                    return Some("data: {\"stopped\":true}\n\n".to_owned());
                }
            }
        }
        None
    }
}

impl Events {
    pub(super) fn new(shared: Arc<Shared>, headers: HeaderMap, place: StreamPlace) -> Self {
        Self {
            board: shared.board.subscribe(),
            shared,
            headers,
            place,
            position: Position::default(),
            written: None,
            ended: false,
        }
    }

    fn due(&mut self, now: BootTime) -> BootTime {
        let board = self.board.borrow_and_update();
        let Some(written) = self.written.as_ref().filter(|written| written.complete) else {
            return now;
        };
        let is_new = board.is_ahead_of(self.position) || board.link != written.link;
        written.at + if is_new { BATCH } else { HEARTBEAT }
    }

    fn event(&mut self, now: BootTime) -> String {
        let board = self.board.borrow();
        let link = self.shared.link(&board, now);
        // While the data is stale, the page freezes the times since renewals.
        let mut delta = board.since(self.position, link.shown_at(now));
        self.position = delta.at;
        self.written = Some(LastFrame {
            at: now,
            link: board.link.clone(),
            complete: delta.complete,
        });
        // Before the first listing, the server does not know whether documents are missing.
        delta.reset &= board.is_listed();
        delta.complete &= board.is_listed();
        let info = self.shared.session.collection.info().unwrap_or_default();
        let mut store = render::store_object(&info);
        store["state"] = json!(link.state);
        store["why"] = json!(link.why.as_ref().map(Failure::summary));
        store["listed"] = board.is_listed().into();
        store["old_ms"] = link.age(now).map(millis).into();
        store["now"] = board.store_now(now).map(date).into();
        let mut data = json!(delta);
        data["now"] = date(wall()).into();
        data["store"] = store;
        format!("data: {data}\n\n")
    }
}

/// `roll` is the result of the last roll call since the holder's last renewal.
pub(super) fn row(seen: &ObservedDocument, roll: Option<&Roll>, now: BootTime) -> Value {
    match &seen.entry.content {
        Content::Lock(lock) => of_lock(seen, lock, CLAIMS_MAX, now),
        Content::Lease(lease) => {
            let mut object = named(seen, "lease", render::object(seen, None, now));
            if !object["holder"].is_null() {
                // The page itself adds the evidence of the holder's clock.
                object["holder"]["silent_ms"] = millis(seen.silence.lasts(now)).into();
            }
            object["roll_call"] = roll.map(Roll::words).into();
            add_history(&mut object, &lease.history);
            object["pause"] = lease
                .pause()
                .map(|it| json!({ "by": it.by, "at": date(it.at), "reason": it.reason }))
                .into();
            object
        }
        Content::Foreign(_) => {
            let mut object = named(seen, "foreign", render::object(seen, None, now));
            object["unreadable"] = seen.entry.kind.into();
            object
        }
    }
}

/// Age of a holder's last renewal in milliseconds, and a flag. If the flag is false, the renewal
/// was not observed, and its date follows.
#[derive(Debug, Serialize)]
pub(super) struct RenewalAge(u64, bool, Option<String>);

/// Returns the part of [`row`] that a renewal changes: the age of each holder's last renewal.
pub(super) fn renewal(seen: &ObservedDocument, now: BootTime) -> Vec<RenewalAge> {
    let renewed = |silence: &Silence, renewed_at: WallMillis| {
        let written = (!silence.renewal_seen).then(|| date(renewed_at));
        RenewalAge(millis(silence.lasts(now)), silence.renewal_seen, written)
    };
    match &seen.entry.content {
        Content::Lock(record) => {
            let holders = record.lock.holders.iter().take(CLAIMS_MAX);
            let renewed = holders.filter_map(|holder| {
                let silence = seen.claims.get(&holder.claim)?;
                Some(renewed(silence, holder.owner.renewed_at))
            });
            renewed.collect()
        }
        Content::Lease(lease) => {
            let holder = lease.holder.iter();
            let renewed = holder.map(|holder| renewed(&seen.silence, holder.renewed_at));
            renewed.collect()
        }
        Content::Foreign(_) => Vec::new(),
    }
}

pub(super) fn details(board: &Snapshot, seen: &ObservedDocument, now: BootTime) -> Value {
    match &seen.entry.content {
        Content::Lock(lock) => {
            let mut object = of_lock(seen, lock, usize::MAX, now);
            object["history"] = lock.history.iter().map(render::ended_object).collect();
            object
        }
        Content::Lease(lease) => {
            let mut object = board.row(seen, now);
            render::add_past(&mut object, lease);
            if let Some(last) = board.roll_call(&seen.entry.name) {
                let present = last.present.iter();
                object["candidates"] = present.map(|one| one.identity.as_str()).collect();
                object["present"] = names(&last.present).into();
                object["answered_ms"] = millis(now.since(last.at)).into();
            }
            object
        }
        Content::Foreign(_) => board.row(seen, now),
    }
}

/// Adds the last former holder, and the timeline of all former holders. Each entry has the start
/// and end in wall-clock milliseconds, identity, token, reason, and a flag that is true if the
/// holder stopped before the recorded end.
fn add_history(object: &mut Value, history: &[PastHolder]) {
    let past = history.iter().map(|one| {
        let identity = one.identity.as_ref().map(|identity| identity.as_str());
        let token = one.token.map(|token| token.get());
        json!([
            one.acquired_at.0,
            one.ended_at.0,
            identity,
            token,
            one.reason,
            render::ended_earlier(one)
        ])
    });
    object["past"] = past.collect();
    object["last"] = history.last().map(render::ended_object).into();
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
        entries
            .map(|entry| claim(seen, record, entry, now))
            .collect()
    };
    let successes = lock.successes.iter().rev();
    let successes = successes.map(|one| json!({ "key": one.key.as_str(), "at": date(one.at) }));
    let object = json!({
        "token": lock.token.get(),
        "successes": successes.collect::<Value>(),
        "slots": lock.slots,
        "holders": claims(&lock.holders),
        "holders_total": lock.holders.len(),
        "queue": claims(&lock.queue),
        "queue_total": lock.queue.len(),
    });
    let mut object = named(seen, "lock", object);
    add_history(&mut object, &record.history);
    object
}

fn claim(seen: &ObservedDocument, record: &LockRecord, entry: &Entry, now: BootTime) -> Value {
    let silence = seen.claims.get(&entry.claim);
    let mut object = render::entry_object(entry);
    // While the work continues, each renewal changes the end of the minimum hold.
    let kept_until = record.kept_until.get(&entry.claim);
    let kept_until = kept_until.filter(|_| entry.work_done);
    object["kept_until"] = kept_until.map(|until| date(*until)).into();
    object["silent_ms"] = silence.map(|silence| millis(silence.lasts(now))).into();
    object["renewal_seen"] = silence.is_some_and(|silence| silence.renewal_seen).into();
    object
}
