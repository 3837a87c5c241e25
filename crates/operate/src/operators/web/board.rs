//! All documents of the collection as the page shows them, and the changes that each browser has
//! not received.
//!
//! Each change gets a number. A browser is at the number of the last change that it has received,
//! so nothing is queued for it: it gets the newest state of everything that has changed since.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use serde_json::Value;

use super::super::observed::{Observed, ObservedDocument, Silence, lease};
use super::document::{self, RenewalAge};
use leasehold_core::election::BootTime;
use leasehold_mongodb::store::Failure;
use leasehold_mongodb::store::mongo::operators::{Content, LockRecord, RollCall, ViewEvent};

/// Maximum number of documents in one event, 30 to 200 KB. The list of a large collection is sent in
/// several events, each made when the browser has taken the one before.
const DOCUMENTS_MAX: usize = 64;
/// Maximum number of renewals in one event.
const RENEWALS_MAX: usize = 1_000;
/// Maximum number of deleted documents that are remembered for browsers that have not received them.
const REMOVED_MAX: usize = 1_000;

/// The number of a change.
pub(super) type Version = u64;

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
    /// A browser at an earlier change may not know of all deletions.
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

/// The difference that an event makes to a document, apart from the renewals of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChangeKind {
    None,
    /// Owners of a lock have renewed.
    Renewal,
    /// The document differs otherwise.
    Content,
}

/// The connection to MongoDB.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum Link {
    /// Nothing has been read yet, for this reason if it is known.
    #[default]
    Connecting,
    /// Changes are reported.
    Current,
    /// Changes are not reported; the collection is read at intervals.
    Polling(String),
    /// The collection cannot be read.
    Lost {
        /// The reason.
        why: String,
        /// When the shown data was last current; `None` if nothing is shown.
        since: Option<BootTime>,
    },
}

/// The changes that a browser has not received.
#[derive(Debug, Default)]
pub(super) struct Delta {
    pub(super) documents: Vec<Value>,
    pub(super) renewed: Vec<(String, Vec<RenewalAge>)>,
    pub(super) removed: Vec<String>,
    /// True if the browser shall forget what it knows once it has received all documents.
    pub(super) reset: bool,
    /// The last change that it contains.
    pub(super) at: Version,
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
    /// Returns true if the shown data is current.
    fn is_up(&self) -> bool {
        matches!(self, Self::Current | Self::Polling(_))
    }
}

impl Snapshot {
    /// Applies an event of the view.
    pub(super) fn apply(&mut self, event: ViewEvent, now: BootTime) {
        match &event {
            ViewEvent::Failed(failure) => self.lost(failure, now),
            ViewEvent::Polling(failure) if self.link.is_up() => {
                self.link = Link::Polling(failure.to_string());
            }
            ViewEvent::Polling(failure) => self.lost(failure, now),
            ViewEvent::Listed { .. } if matches!(self.link, Link::Polling(_)) => {}
            ViewEvent::Streaming if !self.listed => {}
            ViewEvent::Listed { .. } | ViewEvent::Changed { .. } | ViewEvent::Streaming => {
                self.link = Link::Current;
            }
            ViewEvent::Removed { .. } => {}
        }
        let names = match &event {
            ViewEvent::Changed { entry, .. } => vec![entry.name.clone()],
            ViewEvent::Removed { name } => vec![name.clone()],
            ViewEvent::Listed { entries, .. } => {
                let present = entries.iter().map(|entry| &entry.name);
                let known = self.changes.iter().filter(|(_, c)| c.silence.is_some());
                let gone = known.map(|(name, _)| name);
                let mut names: Vec<_> = present.chain(gone).cloned().collect();
                names.sort_unstable();
                names.dedup();
                names
            }
            ViewEvent::Failed(_) | ViewEvent::Polling(_) | ViewEvent::Streaming => Vec::new(),
        };
        self.listed |= matches!(event, ViewEvent::Listed { .. });
        let before = names.iter().map(|name| self.lock(name).cloned());
        let before: Vec<_> = before.collect();
        let changed = self.observed.apply(event);
        for (name, before) in names.into_iter().zip(before) {
            let news = match (
                before.as_ref().zip(self.lock(&name)),
                changed.contains(&name),
            ) {
                (Some((before, after)), true) if document::differs_by_renewal(before, after) => {
                    ChangeKind::Renewal
                }
                (_, true) => ChangeKind::Content,
                (_, false) => ChangeKind::None,
            };
            let news = if self.answered(&name, now) {
                ChangeKind::Content
            } else {
                news
            };
            self.record(name, news);
        }
    }

    fn lock(&self, name: &str) -> Option<&LockRecord> {
        match &self.observed.get(name)?.entry.content {
            Content::Lock(lock) => Some(lock),
            Content::Lease(_) | Content::Foreign(_) => None,
        }
    }

    /// Records the answers to a roll call; returns true if there are new ones.
    fn answered(&mut self, name: &str, now: BootTime) -> bool {
        let Some(lease) = self.observed.get(name).and_then(|seen| lease(&seen.entry)) else {
            self.roll_calls.remove(name);
            return false;
        };
        let answered = lease
            .roll_call
            .as_ref()
            .filter(|call| !call.present.is_empty());
        let known = self.roll_calls.get(name).map(|known| &known.roll_call);
        let Some(roll_call) = answered.filter(|call| known != Some(call)).cloned() else {
            return false;
        };
        let answered = AnsweredRollCall { roll_call, at: now };
        self.roll_calls.insert(name.to_owned(), answered);
        true
    }

    /// Records that the collection cannot be read.
    pub(super) fn lost(&mut self, failure: &Failure, now: BootTime) {
        let since = match &self.link {
            Link::Lost { since, .. } => *since,
            Link::Connecting => None,
            Link::Current | Link::Polling(_) => Some(now),
        };
        let why = failure.to_string();
        self.link = Link::Lost { why, since };
    }

    /// Records a change of a document.
    fn record(&mut self, name: String, news: ChangeKind) {
        let silence = self.observed.get(&name).map(|seen| seen.silence);
        let before = self.changes.get(&name);
        let known = before.and_then(|change| change.silence);
        if silence == known && news == ChangeKind::None {
            return;
        }
        self.newest += 1;
        let content = match before {
            Some(change) if news != ChangeKind::Content => change.content,
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
        self.forget();
    }

    /// Forgets the oldest deletions.
    fn forget(&mut self) {
        while self.removed > REMOVED_MAX {
            let is_removed = |name: &String| self.changes[name].silence.is_none();
            let Some((version, name)) = self.order.iter().find(|(_, name)| is_removed(name)) else {
                return;
            };
            let (version, name) = (*version, name.clone());
            self.order.remove(&version);
            self.changes.remove(&name);
            self.removed -= 1;
            self.forgotten = version;
        }
    }

    /// Returns what has changed since `seen`; 0 is a browser that has seen nothing.
    pub(super) fn since(&self, seen: Version, now: BootTime) -> Delta {
        let seen = if seen < self.forgotten { 0 } else { seen };
        let mut piece = Delta {
            reset: seen == 0,
            at: seen,
            complete: true,
            ..Delta::default()
        };
        for (version, name) in self.order.range((Bound::Excluded(seen), Bound::Unbounded)) {
            if piece.documents.len() >= DOCUMENTS_MAX || piece.renewed.len() >= RENEWALS_MAX {
                piece.complete = false;
                break;
            }
            piece.at = *version;
            match self.observed.get(name) {
                None if seen == 0 => {}
                None => piece.removed.push(name.clone()),
                Some(known) if self.changes[name].content > seen => {
                    piece.documents.push(document::row(known, now));
                }
                Some(known) => {
                    let renewed = document::renewal(known, now);
                    piece.renewed.push((name.clone(), renewed));
                }
            }
        }
        piece
    }

    /// Returns true if something has changed since `seen`.
    pub(super) fn is_ahead_of(&self, seen: Version) -> bool {
        self.newest > seen
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

    /// Returns the age of the shown data, if it is stale.
    pub(super) fn age(&self, now: BootTime) -> Option<Duration> {
        match &self.link {
            Link::Lost { since, .. } => since.map(|since| now.since(since)),
            Link::Connecting | Link::Current | Link::Polling(_) => None,
        }
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
        let first = board.since(0, at(2));
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
        assert_eq!(names(&board.since(0, at(3))), ["b"]);
    }

    #[test]
    fn a_large_list_comes_in_pieces() {
        let entries: Vec<_> = (0..150).map(|n| entry(&format!("{n:03}"), "x")).collect();
        let mut board = Snapshot::default();
        board.apply(ViewEvent::Listed { entries, at: at(1) }, at(1));
        let (mut seen, mut sizes) = (0, Vec::new());
        loop {
            let piece = board.since(seen, at(2));
            sizes.push(piece.documents.len());
            seen = piece.at;
            if piece.complete {
                break;
            }
        }
        assert_eq!(sizes, [64, 64, 22]);
    }

    #[test]
    fn forgotten_deletions_make_a_browser_start_again() {
        let mut board = Snapshot::default();
        board.apply(changed("stays", "x"), at(1));
        let seen = board.since(0, at(1)).at;
        for number in 0..=REMOVED_MAX {
            let name = number.to_string();
            board.apply(changed(&name, "x"), at(1));
            board.apply(ViewEvent::Removed { name }, at(1));
        }
        let again = board.since(seen, at(2));
        assert!(again.reset);
        assert_eq!(names(&again), ["stays"]);
        assert_eq!(board.changes.len(), REMOVED_MAX + 1);
    }

    #[test]
    fn the_documents_are_old_since_mongodb_was_lost() {
        let mut board = Snapshot::default();
        let failure = Failure::new("no primary", "");
        board.apply(ViewEvent::Failed(failure.clone()), at(1));
        assert!(!board.is_listed());
        board.apply(ViewEvent::Streaming, at(2));
        assert!(!board.is_listed() && board.link != Link::Current);
        let entries = vec![entry("a", "x")];
        board.apply(ViewEvent::Listed { entries, at: at(2) }, at(2));
        assert!(board.is_listed() && board.link == Link::Current);
        board.apply(ViewEvent::Failed(failure.clone()), at(3));
        board.apply(ViewEvent::Failed(failure), at(5));
        assert_eq!(board.age(at(7)), Some(Duration::from_secs(4)));
        board.apply(ViewEvent::Streaming, at(8));
        assert_eq!(board.age(at(9)), None);
    }
}
