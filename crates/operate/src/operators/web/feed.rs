//! `GET /events`: the collection as server-sent events.
//!
//! A stream queues nothing. An event is made when the connection can take it, from the newest
//! documents, so a slow browser skips states.

use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

use super::board::{Link, Snapshot, Version};
use leasehold_clock::boot_now;
use leasehold_core::election::BootTime;
use leasehold_host::log::millis;
use leasehold_http::{EventBody, Feed, StreamPlace, event_body};
use leasehold_mongodb::store::StoreInfo;

/// Minimum time between two events about changes, once a browser has all documents.
const BATCH: Duration = Duration::from_millis(100);
/// Maximum time between two events. After three missing events the page assumes a lost connection.
const HEARTBEAT: Duration = Duration::from_secs(2);

/// A stream of events to one browser.
struct Events {
    board: watch::Receiver<Snapshot>,
    info: Box<dyn Fn() -> StoreInfo + Send>,
    is_permitted: Box<dyn Fn() -> BoxFuture<'static, bool> + Send>,
    place: StreamPlace,
    seen: Version,
    /// The last event; `None` before the first.
    written: Option<LastFrame>,
    ended: bool,
}

struct LastFrame {
    at: BootTime,
    link: Link,
    complete: bool,
}

/// Opens a stream. It ends when the visitor is no longer permitted to see it.
pub(super) fn events(
    board: watch::Receiver<Snapshot>,
    info: impl Fn() -> StoreInfo + Send + 'static,
    is_permitted: impl Fn() -> BoxFuture<'static, bool> + Send + 'static,
    place: StreamPlace,
) -> EventBody {
    event_body(Events {
        board,
        info: Box::new(info),
        is_permitted: Box::new(is_permitted),
        place,
        seen: 0,
        written: None,
        ended: false,
    })
}

impl Feed for Events {
    /// Waits for the next event; `None` after the last one.
    async fn next(&mut self) -> Option<String> {
        loop {
            if self.ended {
                return None;
            }
            let now = boot_now();
            let due = self.due(now);
            if due <= now {
                let is_permitted = (self.is_permitted)();
                return is_permitted.await.then(|| self.event(boot_now()));
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
    }
}

impl Events {
    /// Returns when the next event is due.
    fn due(&mut self, now: BootTime) -> BootTime {
        let board = self.board.borrow_and_update();
        let Some(written) = self.written.as_ref().filter(|written| written.complete) else {
            return now;
        };
        let is_new = board.is_ahead_of(self.seen) || board.link != written.link;
        written.at + if is_new { BATCH } else { HEARTBEAT }
    }

    fn event(&mut self, now: BootTime) -> String {
        let board = self.board.borrow();
        let piece = board.since(self.seen, now);
        let data = json!({
            // Before the collection has been read, nothing is known to be missing.
            "reset": piece.reset && board.is_listed(),
            "complete": piece.complete && board.is_listed(),
            "store": store(&board, (self.info)(), now),
            "documents": piece.documents,
            "renewed": piece.renewed,
            "removed": piece.removed,
        });
        self.seen = piece.at;
        self.written = Some(LastFrame {
            at: now,
            link: board.link.clone(),
            complete: piece.complete,
        });
        format!("data: {data}\n\n")
    }
}

/// Describes the connection to MongoDB.
fn store(board: &Snapshot, info: StoreInfo, now: BootTime) -> Value {
    let (state, why) = match &board.link {
        Link::Connecting => ("connecting", None),
        Link::Current => ("current", None),
        Link::Polling(why) => ("polling", Some(why)),
        Link::Lost { why, .. } => ("lost", Some(why)),
    };
    json!({
        "kind": info.kind.as_str(),
        "set": info.set,
        "database": info.database,
        "collection": info.collection,
        "state": state,
        "why": why,
        "listed": board.is_listed(),
        "old_ms": board.age(now).map(millis),
    })
}
