//! Finds the call that explains a change.

use std::collections::HashMap;
use std::fmt::Debug;

use leasehold_core::election::{self, Claim, Revision, Session, WallMillis};
use leasehold_core::lock::{self, Entry, LockDocument};
use leasehold_reference as reference;

use super::{Made, Transition, lease, locks};
use crate::calls::Outcome;
use crate::state::{Operation, State, Stored, changed};

/// A property that a change shares with each call that may explain it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    /// The change sets this revision.
    Revision(Revision),
    /// The change sets or removes a standby of this session.
    Standby(Session),
    /// The change removes the entry of this claim from a lock.
    Removed(Claim),
    /// The change creates a lock.
    Created,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Explanation {
    pub(super) call: usize,
    /// True if no other call could explain the change.
    pub(super) is_only: bool,
}

pub(super) struct Index<'a> {
    calls: &'a [Made<'a>],
    by_key: HashMap<Key, Vec<usize>>,
    intervals: lease::Intervals,
}

impl<'a> Index<'a> {
    pub(super) fn new(calls: &'a [Made<'a>]) -> Self {
        let mut by_key: HashMap<_, Vec<_>> = HashMap::new();
        for (number, made) in calls.iter().enumerate() {
            for key in keys(&made.call.operation) {
                by_key.entry(key).or_default().push(number);
            }
        }
        let intervals = calls.iter().filter_map(|made| match &made.call.operation {
            Operation::Lease(operation) => lease::interval(operation),
            Operation::Lock(_) => None,
        });
        Self {
            calls,
            by_key,
            intervals: intervals.collect(),
        }
    }

    pub(super) fn repeated(&self) -> Vec<(usize, usize)> {
        let pair = |(key, calls): (&Key, &Vec<usize>)| match (key, calls.as_slice()) {
            (Key::Revision(_), [first, second, ..]) => Some((*first, *second)),
            _ => None,
        };
        let mut pairs: Vec<_> = self.by_key.iter().filter_map(pair).collect();
        pairs.sort_unstable();
        pairs
    }

    /// Returns the call that explains this change and no earlier change. If several calls match,
    /// prefers an applied call whose answer shows the document after the change, then a call that may
    /// have been applied, then another applied call. The order matters for a standby that
    /// registers again after an unknown outcome, because its two calls differ only in their
    /// answers.
    pub(super) fn explain(
        &self,
        transition: &Transition,
        is_used: &dyn Fn(usize) -> bool,
    ) -> Result<Explanation, String> {
        let Transition { before, after, .. } = transition;
        let mut candidates: Vec<usize> = keys_of(&before.state, &after.state)
            .iter()
            .filter_map(|key| self.by_key.get(key))
            .flatten()
            .copied()
            .collect();
        candidates.sort_unstable();
        candidates.dedup();
        let mut refusals = Vec::new();
        let (mut answered, mut unknown, mut applied, mut able) = (None, None, None, 0);
        for number in candidates {
            let made = &self.calls[number];
            let why = match (self.effect(made, before, after), made.call.outcome()) {
                (Err(why), _) => why,
                (
                    Ok(()),
                    outcome @ (Outcome::Applied | Outcome::PrimaryOnly | Outcome::Unknown),
                ) => {
                    able += 1;
                    match (is_used(number), outcome) {
                        (true, _) => "it explains an earlier change".to_owned(),
                        (false, Outcome::Applied) => {
                            let first = match other_answer(made, after) {
                                None => &mut answered,
                                Some(_) => &mut applied,
                            };
                            first.get_or_insert(number);
                            continue;
                        }
                        (false, _) => {
                            unknown.get_or_insert(number);
                            continue;
                        }
                    }
                }
                (Ok(()), outcome) => {
                    format!("it would produce this change, but was {}", outcome.as_str())
                }
            };
            refusals.push(format!("{}: {why}", made.describe()));
        }
        let found = answered.or(unknown).or(applied).map(|call| Explanation {
            call,
            is_only: able == 1,
        });
        found.ok_or_else(|| {
            let fields = changed(before, after).join(", ");
            let why = match refusals.is_empty() {
                true => String::new(),
                false => format!(": {}", refusals.join("; ")),
            };
            format!("no recorded call explains this change of {fields}{why}")
        })
    }

    fn effect(&self, made: &Made<'_>, before: &Stored, after: &Stored) -> Result<(), String> {
        match &made.call.operation {
            Operation::Lease(operation) => {
                lease::effect((operation, made.by), &self.intervals, before, after)
            }
            Operation::Lock(operation) => locks::effect((operation, made.by), before, after),
        }
    }
}

fn keys(operation: &Operation) -> Vec<Key> {
    match operation {
        Operation::Lease(operation) => match operation {
            election::Operation::Read { .. } => vec![],
            election::Operation::Create { revision, .. }
            | election::Operation::Renew { revision, .. }
            | election::Operation::Release { revision, .. } => vec![Key::Revision(*revision)],
            election::Operation::Acquire(acquisition)
            | election::Operation::TakeOver { acquisition, .. } => {
                vec![Key::Revision(acquisition.revision)]
            }
            election::Operation::Register { session, .. }
            | election::Operation::Withdraw { session } => vec![Key::Standby(*session)],
        },
        Operation::Lock(operation) => match operation {
            lock::LockOperation::Read { .. } => vec![],
            lock::LockOperation::Create { .. } => vec![Key::Created],
            lock::LockOperation::Join { entry, .. } => vec![Key::Revision(entry.revision)],
            lock::LockOperation::Renew { revision, .. }
            | lock::LockOperation::Keep { revision, .. } => {
                vec![Key::Revision(*revision)]
            }
            lock::LockOperation::Leave { claim, .. } => vec![Key::Removed(*claim)],
            lock::LockOperation::Evict { entries, .. } => {
                let claims = entries.iter().map(|seen| Key::Removed(seen.claim));
                claims.collect()
            }
            lock::LockOperation::Break { claims, .. } => {
                claims.iter().copied().map(Key::Removed).collect()
            }
        },
    }
}

fn keys_of(before: &State, after: &State) -> Vec<Key> {
    match (before, after) {
        (State::Missing, State::Lock(_)) => vec![Key::Created],
        (State::Missing, State::Lease(after)) => vec![Key::Revision(after.revision)],
        (State::Lease(before), State::Lease(after)) if before.revision == after.revision => {
            let changed = before.standby != after.standby;
            let standby = after.standby.as_ref().or(before.standby.as_ref());
            let standby = standby.filter(|_| changed);
            let key = standby.map(|standby| Key::Standby(standby.session));
            key.into_iter().collect()
        }
        (State::Lease(_), State::Lease(after)) => vec![Key::Revision(after.revision)],
        (State::Lock(before), State::Lock(after)) => {
            let known = |of: &LockDocument| -> HashMap<Claim, Revision> {
                let entries = entries(of).map(|entry| (entry.claim, entry.revision));
                entries.collect()
            };
            let (before, after) = (known(before), known(after));
            let gone = before.keys().filter(|claim| !after.contains_key(claim));
            let gone = gone.map(|claim| Key::Removed(*claim));
            let new = after
                .iter()
                .filter(|(claim, revision)| before.get(claim) != Some(revision));
            let new = new.map(|(_, revision)| Key::Revision(*revision));
            gone.chain(new).collect()
        }
        _ => vec![],
    }
}

/// Describes how a call's answer differs from the document after its change, if at all.
pub(super) fn other_answer(made: &Made<'_>, after: &Stored) -> Option<String> {
    let found = made.call.found.as_ref()?;
    let stored = after.state.clone();
    let stored = stored.seen_by(made.call.operation.kind());
    (*found != stored).then(|| difference(&stored, found))
}

pub(super) fn matches(made: &Made<'_>, state: &State) -> bool {
    match (&made.call.operation, state) {
        (Operation::Lease(operation), State::Lease(lease)) => {
            let mut lease = Some((**lease).clone());
            reference::election::write(&mut lease, made.by, WallMillis::default(), operation)
        }
        (Operation::Lock(operation), State::Lock(lock)) => {
            let by = reference::lock::By {
                identity: made.by,
                at: WallMillis::default(),
                store_now: WallMillis::default(),
            };
            let mut found = lock::FoundLock::Lock((**lock).clone());
            let performed = reference::lock::apply(&mut found, by, operation);
            matches!(performed.outcome, lock::LockOutcome::Applied(_))
        }
        _ => false,
    }
}

pub(super) fn entries(lock: &LockDocument) -> impl Iterator<Item = &Entry> {
    lock.holders.iter().chain(&lock.queue)
}

pub(super) fn difference(expected: &State, actual: &State) -> String {
    let mut parts = Vec::new();
    let mut part = |field: &str, expected: &dyn Debug, actual: &dyn Debug| {
        let (expected, actual) = (format!("{expected:?}"), format!("{actual:?}"));
        if expected != actual {
            parts.push(format!("{field} is {actual} instead of {expected}"));
        }
    };
    match (expected, actual) {
        (State::Lease(e), State::Lease(a)) => {
            part("token", &e.token, &a.token);
            part("revision", &e.revision, &a.revision);
            part("holder", &e.holder, &a.holder);
            part("paused", &e.paused, &a.paused);
            part("request", &e.request, &a.request);
            part("reserved_for", &e.reserved_for, &a.reserved_for);
            part("standby", &e.standby, &a.standby);
        }
        (State::Lock(e), State::Lock(a)) => {
            part("token", &e.token, &a.token);
            part("slots", &e.slots, &a.slots);
            part("slot_owners", &e.slot_owners, &a.slot_owners);
            part("holders", &e.holders, &a.holders);
            part("queue", &e.queue, &a.queue);
            part("successes", &e.successes, &a.successes);
        }
        (expected, actual) => part("the document", expected, actual),
    }
    parts.join("; ")
}
