//! All documents of the collection as the page shows them, and the changes that each browser has
//! not received.
//!
//! Each change gets a number. A browser is at the number of the last change that it has received,
//! so nothing is queued for it: it gets the newest state of everything that has changed since.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::super::observed::{Observed, ObservedDocument, Silence, lease};
use super::document::{self, RenewalAge};
use leasehold_core::election::BootTime;
use leasehold_mongodb::store::Failure;
use leasehold_mongodb::store::mongo::operators::{RollCall, ViewEvent};

/// Maximum number of documents in one event, 30 to 200 KB. The list of a large collection is sent in
/// several events, each made when the browser has taken the one before.
const DOCUMENTS_MAX: usize = 64;
/// Maximum number of renewals in one event.
const RENEWALS_MAX: usize = 1_000;
/// Maximum number of deleted documents that are remembered for browsers that have not received them.
const REMOVED_MAX: usize = 1_000;

/// The number of a change.
type Version = u64;

/// How far a browser is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Position {
    /// The last change that it has received; 0 if it has received nothing.
    seen: Version,
    /// The newest change when it began to receive all documents. It cannot have documents that were
    /// deleted before.
    begun: Version,
}

/// The documents, and their changes.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    observed: Observed,
    /// The last roll call of each lease that candidates have answered. It is removed from the lease
    /// once its operator has the answers.
    roll_calls: BTreeMap<String, AnsweredRollCall>,
    changes: BTreeMap<String, Change>,
    /// The name of the document that was changed, by the number of its last change.
    order: BTreeMap<Version, String>,
    newest: Version,
    /// Deleted documents in `changes`.
    removed: usize,
    /// The newest deletion that is not in `changes`. A browser that began earlier, and is at an earlier
    /// change, may not know of it.
    forgotten: Version,
    /// True once all documents have been read.
    listed: bool,
    pub(super) link: Link,
}

/// A roll call with answers.
#[derive(Debug)]
pub(super) struct AnsweredRollCall {
    pub(super) roll_call: RollCall,
    /// The time of the newest answer.
    pub(super) at: BootTime,
}

/// The last change of a document.
#[derive(Debug)]
struct Change {
    last: Version,
    /// The last change other than a renewal.
    content: Version,
    /// The time without a renewal as of the last change; `None` if it was deleted.
    silence: Option<Silence>,
}

/// The connection to MongoDB.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Link {
    pub(super) state: LinkState,
    /// The reason why changes are not reported, or nothing is read.
    pub(super) why: Option<String>,
    /// When the shown data was last current; `None` if it is current, or nothing is shown.
    pub(super) stale_since: Option<BootTime>,
}

/// The state of the connection to MongoDB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LinkState {
    /// Nothing has been read yet.
    #[default]
    Connecting,
    /// Changes are reported.
    Current,
    /// Changes are not reported; the collection is read at intervals.
    Polling,
    /// The collection cannot be read.
    Lost,
}

/// The changes that a browser has not received.
#[derive(Debug, Default, Serialize)]
pub(super) struct Delta {
    pub(super) documents: Vec<Value>,
    pub(super) renewed: Vec<(String, Vec<RenewalAge>)>,
    pub(super) removed: Vec<String>,
    /// True if the browser shall forget what it knows once it has received all documents.
    pub(super) reset: bool,
    /// How far a browser is that has received it.
    #[serde(skip)]
    pub(super) at: Position,
    /// True if it contains all that has changed.
    pub(super) complete: bool,
}

#[cfg(test)]
impl Delta {
    fn is_empty(&self) -> bool {
        self.documents.is_empty() && self.renewed.is_empty() && self.removed.is_empty()
    }
}

impl Link {
    /// Returns the age of the shown data, if it is stale.
    pub(super) fn age(&self, now: BootTime) -> Option<Duration> {
        self.stale_since.map(|since| now.since(since))
    }
}

impl Snapshot {
    pub(super) fn apply(&mut self, event: ViewEvent, now: BootTime) {
        match (&event, self.link.state) {
            (ViewEvent::Polling(failure), LinkState::Current | LinkState::Polling) => {
                self.link = Link {
                    state: LinkState::Polling,
                    why: Some(failure.to_string()),
                    stale_since: None,
                };
            }
            (ViewEvent::Failed(failure) | ViewEvent::Polling(failure), _) => {
                self.lost(failure, now);
            }
            (ViewEvent::Listed { .. }, LinkState::Polling) | (ViewEvent::Removed { .. }, _) => {}
            (ViewEvent::Streaming, _) if !self.listed => {}
            (ViewEvent::Listed { .. } | ViewEvent::Changed { .. } | ViewEvent::Streaming, _) => {
                self.link = Link {
                    state: LinkState::Current,
                    ..Link::default()
                };
            }
        }
        self.listed |= matches!(event, ViewEvent::Listed { .. });
        for (name, differs) in self.observed.apply(event) {
            let answered = self.answered(&name, now);
            self.record(name, differs || answered);
        }
    }

    /// Records the answers to a roll call; returns true if there are new ones.
    fn answered(&mut self, name: &str, now: BootTime) -> bool {
        let Some(lease) = self.observed.get(name).and_then(|seen| lease(&seen.entry)) else {
            self.roll_calls.remove(name);
            return false;
        };
        let known = self.roll_calls.get(name).map(|known| &known.roll_call);
        let is_new = |call: &&RollCall| !call.present.is_empty() && known != Some(call);
        let Some(roll_call) = lease.roll_call.as_ref().filter(is_new).cloned() else {
            return false;
        };
        let answered = AnsweredRollCall { roll_call, at: now };
        self.roll_calls.insert(name.to_owned(), answered);
        true
    }

    /// Records that the collection cannot be read.
    pub(super) fn lost(&mut self, failure: &Failure, now: BootTime) {
        let stale_since = match self.link.state {
            LinkState::Connecting | LinkState::Lost => self.link.stale_since,
            LinkState::Current | LinkState::Polling => Some(now),
        };
        self.link = Link {
            state: LinkState::Lost,
            why: Some(failure.to_string()),
            stale_since,
        };
    }

    /// Records a change of a document; `differs` if it changed other than by a renewal.
    fn record(&mut self, name: String, differs: bool) {
        let silence = self.observed.get(&name).map(|seen| seen.silence);
        let before = self.changes.get(&name);
        if silence == before.and_then(|change| change.silence) && !differs {
            return;
        }
        self.newest += 1;
        let content = match before {
            Some(change) if !differs => change.content,
            _ => self.newest,
        };
        if let Some(before) = before {
            self.order.remove(&before.last);
            self.removed -= usize::from(before.silence.is_none());
        }
        self.removed += usize::from(silence.is_none());
        self.order.insert(self.newest, name.clone());
        let change = Change {
            last: self.newest,
            content,
            silence,
        };
        self.changes.insert(name, change);
        if self.removed > REMOVED_MAX {
            self.forget_oldest_deletion();
        }
    }

    fn forget_oldest_deletion(&mut self) {
        let is_removed = |(_, name): &(&Version, &String)| self.changes[*name].silence.is_none();
        if let Some((version, name)) = self.order.iter().find(is_removed) {
            (self.forgotten, self.removed) = (*version, self.removed - 1);
            self.changes.remove(name);
            self.order.remove(&self.forgotten);
        }
    }

    /// Returns what has changed since a browser was at `position`.
    pub(super) fn since(&self, position: Position, now: BootTime) -> Delta {
        let Position {
            mut seen,
            mut begun,
        } = position;
        if seen.max(begun) < self.forgotten || seen == 0 {
            (seen, begun) = (0, self.newest);
        }
        let mut delta = Delta {
            reset: seen == 0,
            at: Position { seen, begun },
            complete: true,
            ..Delta::default()
        };
        for (version, name) in self.order.range((Bound::Excluded(seen), Bound::Unbounded)) {
            if delta.documents.len() >= DOCUMENTS_MAX || delta.renewed.len() >= RENEWALS_MAX {
                delta.complete = false;
                break;
            }
            delta.at.seen = *version;
            match self.observed.get(name) {
                None if seen == 0 => {}
                None => delta.removed.push(name.clone()),
                Some(known) if self.changes[name].content > seen => {
                    delta.documents.push(document::row(known, now));
                }
                Some(known) => {
                    let renewed = document::renewal(known, now);
                    delta.renewed.push((name.clone(), renewed));
                }
            }
        }
        delta
    }

    /// Returns true if something has changed since a browser was at this position.
    pub(super) fn is_ahead_of(&self, position: Position) -> bool {
        self.newest > position.seen
    }

    /// Returns a document, and the last roll call of its candidates.
    pub(super) fn get(&self, name: &str) -> Option<(&ObservedDocument, Option<&AnsweredRollCall>)> {
        let seen = self.observed.get(name)?;
        Some((seen, self.roll_calls.get(name)))
    }

    /// Returns true once all documents have been read.
    pub(super) const fn is_listed(&self) -> bool {
        self.listed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_mongodb::store::mongo::operators::{CollectionEntry, Content};
    use leasehold_status::fixture::at;

    fn entry(name: &str, why: &str) -> CollectionEntry {
        CollectionEntry {
            name: name.to_owned(),
            content: Content::Foreign(why.to_owned()),
        }
    }

    fn changed(name: &str, why: &str) -> ViewEvent {
        ViewEvent::Changed {
            entry: entry(name, why),
            at: at(1),
        }
    }

    fn names(piece: &Delta) -> Vec<&str> {
        let names = piece.documents.iter().map(|document| &document["name"]);
        names.filter_map(Value::as_str).collect()
    }

    #[test]
    fn a_browser_gets_what_is_newest_once() {
        let mut board = Snapshot::default();
        for (name, why) in [("a", "1"), ("b", "1"), ("a", "2"), ("a", "3")] {
            board.apply(changed(name, why), at(1));
        }
        let first = board.since(Position::default(), at(2));
        assert_eq!(names(&first), ["b", "a"]);
        assert!(first.reset && first.complete);
        assert!(board.since(first.at, at(2)).is_empty());
        board.apply(changed("b", "1"), at(3));
        assert!(board.since(first.at, at(3)).is_empty(), "nothing differs");
        let name = "a".to_owned();
        board.apply(ViewEvent::Removed { name }, at(3));
        let second = board.since(first.at, at(3));
        assert_eq!(second.removed, ["a"]);
        assert!(!second.reset);
        assert_eq!(names(&board.since(Position::default(), at(3))), ["b"]);
    }

    /// Returns the numbers of documents that a new browser receives at a time.
    fn sizes(board: &Snapshot) -> Vec<usize> {
        let (mut position, mut sizes) = (Position::default(), Vec::new());
        loop {
            let delta = board.since(position, at(2));
            sizes.push(delta.documents.len());
            position = delta.at;
            if delta.complete {
                return sizes;
            }
        }
    }

    #[test]
    fn a_large_list_comes_in_pieces() {
        let entries: Vec<_> = (0..150).map(|n| entry(&format!("{n:03}"), "x")).collect();
        let mut board = Snapshot::default();
        board.apply(ViewEvent::Listed { entries, at: at(1) }, at(1));
        assert_eq!(sizes(&board), [64, 64, 22]);
        delete_many(&mut board);
        assert_eq!(
            sizes(&board),
            [64, 64, 22],
            "although deletions are forgotten"
        );
    }

    /// Deletes one document more than are remembered.
    fn delete_many(board: &mut Snapshot) {
        for number in 0..=REMOVED_MAX {
            let name = format!("deleted-{number}");
            board.apply(changed(&name, "x"), at(1));
            board.apply(ViewEvent::Removed { name }, at(1));
        }
    }

    #[test]
    fn forgotten_deletions_make_a_browser_start_again() {
        let mut board = Snapshot::default();
        board.apply(changed("stays", "x"), at(1));
        let seen = board.since(Position::default(), at(1)).at;
        delete_many(&mut board);
        let again = board.since(seen, at(2));
        assert!(again.reset);
        assert_eq!(names(&again), ["stays"]);
        assert!(!board.since(again.at, at(2)).reset, "once");
        assert_eq!(board.changes.len(), REMOVED_MAX + 1);
    }

    #[test]
    fn the_documents_are_old_since_mongodb_was_lost() {
        let mut board = Snapshot::default();
        let failure = Failure::new("no primary", "");
        board.apply(ViewEvent::Failed(failure.clone()), at(1));
        assert!(!board.is_listed());
        board.apply(ViewEvent::Streaming, at(2));
        assert!(!board.is_listed() && board.link.state != LinkState::Current);
        let entries = vec![entry("a", "x")];
        board.apply(ViewEvent::Listed { entries, at: at(2) }, at(2));
        assert!(board.is_listed() && board.link.state == LinkState::Current);
        board.apply(ViewEvent::Failed(failure.clone()), at(3));
        board.apply(ViewEvent::Failed(failure), at(5));
        assert_eq!(board.link.age(at(7)), Some(Duration::from_secs(4)));
        board.apply(ViewEvent::Streaming, at(8));
        assert_eq!(board.link.age(at(9)), None);
    }
}
