//! Stores all documents of the collection, and computes the changes that each browser has not
//! received.
//!
//! Each change has a number. The server remembers two numbers for each browser: the last content
//! change and the last renewal that the browser has received. Documents that have changed since
//! then are sent in their newest state, so the server queues nothing for a browser.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::super::observed::{Evidence, Observed, ObservedDocument, Silence, lease};
use super::super::roll_call::Roll;
use super::feed::{RenewalAge, renewal, row};
use leasehold_core::election::{BootTime, Revision, WallMillis};
use leasehold_mongodb::store::Failure;
use leasehold_mongodb::store::mongo::operators::{Present, RollCall, ViewEvent};
use leasehold_status::render::ClockPair;

/// Maximum number of documents in one event. An event of this size takes 30 to 200 KB; larger
/// collections are sent in several events.
const DOCUMENTS_MAX: usize = 64;
const RENEWALS_MAX: usize = 1_000;
/// Maximum number of deletions remembered for browsers that have not received them.
const REMOVED_MAX: usize = 1_000;

type Version = u64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Position {
    /// The last content change (not a renewal) that the browser has received; 0 before the first.
    content: Version,
    /// The last renewal that the browser has received.
    renewals: Version,
    /// The newest change when the browser began to receive all documents. Documents deleted before
    /// this change were never sent to the browser.
    begun: Version,
}

#[derive(Debug, Default)]
pub(super) struct Snapshot {
    observed: Observed,
    /// The last roll call of each lease. A copy is needed, because each roll call is removed from
    /// the document at its end.
    roll_calls: BTreeMap<String, LastRollCall>,
    /// The result of each lease's last roll call, kept until the holder renews.
    rolls: BTreeMap<String, (Revision, Roll)>,
    changes: BTreeMap<String, Change>,
    /// Document names by the number of their last change.
    order: BTreeMap<Version, String>,
    /// Document names by the number of their last content change.
    contents: BTreeMap<Version, String>,
    newest: Version,
    removed: usize,
    /// The newest deletion that `changes` no longer contains. A browser that connected before this
    /// deletion may have missed it.
    forgotten: Version,
    listed: bool,
    pub(super) link: Link,
}

#[derive(Debug)]
pub(super) struct LastRollCall {
    /// The candidates that answered.
    pub(super) present: Vec<Present>,
    pub(super) at: BootTime,
    /// The last roll call with answers that was seen in the document.
    seen: Option<RollCall>,
}

#[derive(Debug)]
struct Change {
    last: Version,
    content: Version,
    /// `None` if the document was deleted.
    silence: Option<Silence>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Link {
    pub(super) state: LinkState,
    /// The reason if MongoDB reports no changes or cannot be read.
    pub(super) why: Option<Failure>,
    /// Time of MongoDB's last answer before the data became stale; `None` if the data is current,
    /// or if no data is shown.
    pub(super) stale_since: Option<BootTime>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LinkState {
    #[default]
    Connecting,
    /// MongoDB reports changes.
    Current,
    /// MongoDB reports no changes, so the collection is read at intervals.
    Polling,
    Lost,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct Delta {
    pub(super) documents: Vec<Value>,
    pub(super) renewed: Vec<(String, Vec<RenewalAge>)>,
    pub(super) removed: Vec<String>,
    /// True if the browser must discard its documents, because all documents are sent again.
    pub(super) reset: bool,
    /// The browser's position after this delta.
    #[serde(skip)]
    pub(super) at: Position,
    /// True if no later change remains to be sent.
    pub(super) complete: bool,
}

#[cfg(test)]
impl Delta {
    fn is_empty(&self) -> bool {
        self.documents.is_empty() && self.renewed.is_empty() && self.removed.is_empty()
    }
}

impl Link {
    fn of(state: LinkState, why: Option<&Failure>, stale_since: Option<BootTime>) -> Self {
        Self {
            state,
            why: why.cloned(),
            stale_since,
        }
    }

    /// Describes the connection for `/readyz`. Names of servers and users are omitted, because
    /// `/readyz` requires no token.
    pub(super) fn description(&self, now: ClockPair) -> String {
        let why = self.why.as_ref().map(Failure::summary);
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        match (self.state, self.stale_since) {
            (LinkState::Current | LinkState::Polling, _) => "connected to MongoDB".to_owned(),
            (LinkState::Connecting | LinkState::Lost, None) => {
                format!("MongoDB has not answered yet{why}")
            }
            (LinkState::Connecting | LinkState::Lost, Some(since)) => {
                format!("not connected to MongoDB since {}{why}", now.dated(since))
            }
        }
    }

    /// Returns the instant at which the shown data was last current.
    pub(super) fn shown_at(&self, now: BootTime) -> BootTime {
        self.stale_since.unwrap_or(now)
    }

    pub(super) fn age(&self, now: BootTime) -> Option<Duration> {
        self.stale_since.map(|since| now.since(since))
    }
}

impl Snapshot {
    /// Applies an event. `answered` is the time of MongoDB's last answer.
    pub(super) fn apply(&mut self, event: ViewEvent, answered: BootTime) {
        match (&event, self.link.state) {
            (ViewEvent::Polling(failure), LinkState::Current | LinkState::Polling) => {
                self.link = Link::of(LinkState::Polling, Some(failure), None);
            }
            (ViewEvent::Failed(failure) | ViewEvent::Polling(failure), _) => {
                self.lost(failure, answered);
            }
            (ViewEvent::Listed { .. }, LinkState::Polling) | (ViewEvent::Removed { .. }, _) => {}
            (ViewEvent::Streaming, _) if !self.listed => {}
            (ViewEvent::Listed { .. } | ViewEvent::Changed { .. } | ViewEvent::Streaming, _) => {
                self.link = Link::of(LinkState::Current, None, None);
            }
        }
        self.listed |= matches!(event, ViewEvent::Listed { .. });
        for (name, differs) in self.observed.apply(event, answered) {
            let is_answered = self.answered(&name, answered);
            self.record(name, differs || is_answered);
        }
    }

    /// Records that changes since `from` were not observed.
    pub(super) fn lose_sight(&mut self, from: BootTime) {
        self.observed.lose_sight(from);
    }

    /// Returns true if there are new answers to a roll call, or if the holder has renewed since a
    /// roll call.
    fn answered(&mut self, name: &str, now: BootTime) -> bool {
        let Some(lease) = self.observed.get(name).and_then(|seen| lease(&seen.entry)) else {
            self.roll_calls.remove(name);
            self.rolls.remove(name);
            return false;
        };
        let revision = lease.lease.revision;
        let known = self
            .roll_calls
            .get(name)
            .and_then(|known| known.seen.as_ref());
        let is_new = |call: &&RollCall| !call.present.is_empty() && known != Some(call);
        let Some(call) = lease.roll_call.as_ref().filter(is_new).cloned() else {
            let is_old = |(asked, _): &(Revision, Roll)| *asked != revision;
            return self.rolls.get(name).is_some_and(is_old) && self.rolls.remove(name).is_some();
        };
        let mut present = call.present.clone();
        present.sort_by(|a, b| a.identity.cmp(&b.identity));
        let roll = Roll::Answered(present.clone());
        self.rolls.insert(name.to_owned(), (revision, roll));
        let last = LastRollCall {
            present,
            at: now,
            seen: Some(call),
        };
        self.roll_calls.insert(name.to_owned(), last);
        true
    }

    /// Records the result of a roll call that this server made. `revision` is the revision of the
    /// lease at the time of the roll call.
    pub(super) fn called(&mut self, name: &str, revision: Revision, roll: Roll, now: BootTime) {
        if self.revision(name).is_none() {
            return;
        }
        if let Roll::Answered(present) = &roll {
            let known = self.roll_calls.remove(name);
            let last = LastRollCall {
                present: present.clone(),
                at: now,
                seen: known.and_then(|known| known.seen),
            };
            self.roll_calls.insert(name.to_owned(), last);
        }
        if self.revision(name) == Some(revision) {
            self.rolls.insert(name.to_owned(), (revision, roll));
        }
        self.record(name.to_owned(), true);
    }

    pub(super) fn revision(&self, name: &str) -> Option<Revision> {
        let lease = lease(&self.observed.get(name)?.entry)?;
        Some(lease.lease.revision)
    }

    /// Returns the leases whose holder seems to be gone, each with its revision. Paused leases are
    /// excluded, because no candidate may take over. Returns none while MongoDB cannot be read.
    pub(super) fn silent_leases(&self, now: BootTime) -> impl Iterator<Item = (&str, Revision)> {
        let is_read = matches!(self.link.state, LinkState::Current | LinkState::Polling);
        let unled = self.observed.unled_leases(now).filter(move |_| is_read);
        unled.filter_map(move |seen| {
            let lease = lease(&seen.entry).filter(|lease| !lease.lease.paused)?;
            let evidence = seen.evidence(now).filter(Evidence::is_silent);
            evidence.map(|_| (seen.entry.name.as_str(), lease.lease.revision))
        })
    }

    /// Records that the collection cannot be read. `answered` is the time of MongoDB's last answer.
    pub(super) fn lost(&mut self, failure: &Failure, answered: BootTime) {
        let stale_since = match self.link.state {
            LinkState::Connecting | LinkState::Lost => self.link.stale_since,
            LinkState::Current | LinkState::Polling => Some(answered),
        };
        self.link = Link::of(LinkState::Lost, Some(failure), stale_since);
    }

    /// Returns the state of the connection. The connection counts as lost once MongoDB has not
    /// answered for `within`, even if no call has failed yet.
    pub(super) fn link_at(
        &self,
        answered: Option<BootTime>,
        within: Duration,
        now: BootTime,
    ) -> Link {
        let overdue = answered.filter(|answered| now.since(*answered) > within);
        match (self.link.state, overdue) {
            (LinkState::Current | LinkState::Polling, Some(answered)) => {
                let failure = Failure::no_answer(within);
                Link::of(LinkState::Lost, Some(&failure), Some(answered))
            }
            _ => self.link.clone(),
        }
    }

    /// Records a change of a document. `differs` is false if the document was only renewed.
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
            self.contents.remove(&before.content);
            self.removed -= usize::from(before.silence.is_none());
        }
        self.removed += usize::from(silence.is_none());
        self.order.insert(self.newest, name.clone());
        self.contents.insert(content, name.clone());
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
            self.contents.remove(&self.forgotten);
        }
    }

    pub(super) fn since(&self, position: Position, now: BootTime) -> Delta {
        let mut at = position;
        if at.content == 0 || at.content.max(at.begun) < self.forgotten {
            (at.content, at.renewals, at.begun) = (0, self.newest, self.newest);
        }
        let mut delta = Delta {
            reset: at.content == 0,
            complete: true,
            ..Delta::default()
        };
        for (version, name) in after(&self.contents, at.content) {
            if delta.documents.len() >= DOCUMENTS_MAX {
                delta.complete = false;
                break;
            }
            at.content = *version;
            match self.observed.get(name) {
                Some(known) => delta.documents.push(self.row(known, now)),
                None if *version <= at.begun => {}
                None => delta.removed.push(name.clone()),
            }
        }
        for (version, name) in after(&self.order, at.renewals) {
            if delta.renewed.len() >= RENEWALS_MAX {
                delta.complete = false;
                break;
            }
            at.renewals = *version;
            let content = self.changes[name].content;
            // All other changed documents are sent in full.
            let is_known = content <= at.content && content != *version;
            if let Some(known) = self.observed.get(name).filter(|_| is_known) {
                delta.renewed.push((name.clone(), renewal(known, now)));
            }
        }
        delta.at = at;
        delta
    }

    pub(super) fn is_ahead_of(&self, position: Position) -> bool {
        self.newest > position.renewals
    }

    pub(super) fn get(&self, name: &str) -> Option<&ObservedDocument> {
        self.observed.get(name)
    }

    pub(super) fn roll_call(&self, name: &str) -> Option<&LastRollCall> {
        self.roll_calls.get(name)
    }

    pub(super) fn row(&self, seen: &ObservedDocument, now: BootTime) -> Value {
        let roll = self.rolls.get(&seen.entry.name).map(|(_, roll)| roll);
        row(seen, roll, now)
    }

    pub(super) fn store_now(&self, now: BootTime) -> Option<WallMillis> {
        self.observed.store_now(now)
    }

    pub(super) fn documents(&self) -> impl Iterator<Item = &ObservedDocument> {
        self.observed.documents()
    }

    pub(super) const fn is_listed(&self) -> bool {
        self.listed
    }
}

fn after(
    order: &BTreeMap<Version, String>,
    version: Version,
) -> impl Iterator<Item = (&Version, &String)> {
    order.range((Bound::Excluded(version), Bound::Unbounded))
}

#[cfg(test)]
mod tests;
