//! `GET /events`: the collection as server-sent events.
//!
//! A stream queues nothing. An event is made when the connection can take it, from the newest
//! documents, so a slow browser skips states.

use std::sync::Arc;
use std::time::Duration;

use hyper::HeaderMap;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

use super::board::{Link, Position, Snapshot};
use super::site::Shared;
use leasehold_clock::boot_now;
use leasehold_core::election::BootTime;
use leasehold_host::log::millis;
use leasehold_http::{Feed, StreamPlace};
use leasehold_mongodb::store::StoreInfo;

/// Minimum time between two events about changes, once a browser has all documents.
const BATCH: Duration = Duration::from_millis(100);
/// Maximum time between two events. After three missing events the page assumes a lost connection.
const HEARTBEAT: Duration = Duration::from_secs(2);

/// A stream of events to one browser. It ends when the visitor is no longer permitted to see it.
pub(super) struct Events {
    shared: Arc<Shared>,
    /// The headers that prove that the visitor is permitted.
    headers: HeaderMap,
    board: watch::Receiver<Snapshot>,
    place: StreamPlace,
    position: Position,
    /// The last event; `None` before the first.
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
            board: shared.board.clone(),
            shared,
            headers,
            place,
            position: Position::default(),
            written: None,
            ended: false,
        }
    }

    /// Returns when the next event is due.
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
        let mut delta = board.since(self.position, now);
        self.position = delta.at;
        self.written = Some(LastFrame {
            at: now,
            link: board.link.clone(),
            complete: delta.complete,
        });
        // Before the collection has been read, nothing is known to be missing.
        delta.reset &= board.is_listed();
        delta.complete &= board.is_listed();
        let info = self.shared.session.collection.info().unwrap_or_default();
        let mut data = json!(delta);
        data["store"] = store(&board, info, now);
        format!("data: {data}\n\n")
    }
}

/// Describes the connection to MongoDB.
fn store(board: &Snapshot, info: StoreInfo, now: BootTime) -> Value {
    json!({
        "kind": info.kind.as_str(),
        "set": info.set,
        "database": info.database,
        "collection": info.collection,
        "state": board.link.state,
        "why": board.link.why,
        "listed": board.is_listed(),
        "old_ms": board.link.age(now).map(millis),
    })
}
