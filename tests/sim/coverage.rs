//! How often each transition and each fault was hit. A soak in which one of
//! them is never hit has not shown what it claims.

use std::collections::BTreeMap;
use std::fmt;

use super::faults::Fault;
use crate::election::{Notice, Reason, Role, Transition};

/// What is counted: a kind, and what of that kind.
type Key = (&'static str, &'static str, &'static str);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Coverage {
    counts: BTreeMap<Key, u64>,
    faults: BTreeMap<Fault, u64>,
}

/// Changes of role that cannot come about yet: their inputs are those of
/// pieces that are still to be added.
const REASONS_TO_COME: [Reason; 2] = [Reason::Unhealthy, Reason::WorkloadExit];

/// Every change of role that the state machine knows.
const CHANGES: [(Role, Role); 15] = [
    (Role::Unknown, Role::Follower),
    (Role::Unknown, Role::Leader),
    (Role::Unknown, Role::Paused),
    (Role::Follower, Role::Leader),
    (Role::Follower, Role::Paused),
    (Role::Follower, Role::Unknown),
    (Role::Paused, Role::Follower),
    (Role::Paused, Role::Leader),
    (Role::Paused, Role::Unknown),
    (Role::Leader, Role::Stopping),
    (Role::Leader, Role::Follower),
    (Role::Leader, Role::Unknown),
    (Role::Stopping, Role::Follower),
    (Role::Stopping, Role::Paused),
    (Role::Stopping, Role::Unknown),
];

const PATHS: [(&str, &str); 32] = [
    ("operation", "create"),
    ("operation", "acquire"),
    ("operation", "take_over"),
    ("operation", "renew"),
    ("operation", "release"),
    ("operation", "read"),
    ("outcome", "applied"),
    ("outcome", "rejected"),
    ("outcome", "failed"),
    ("outcome", "unknown"),
    ("late", "applied"),
    ("late", "rejected"),
    ("late", "unknown"),
    ("files", "shown"),
    ("files", "stuck"),
    ("notice", "overtook"),
    ("notice", "succeeded"),
    ("notice", "store went back"),
    ("notice", "duplicate"),
    ("notice", "foreign"),
    ("notice", "absurd duration"),
    ("notice", "backing off"),
    ("notice", "not demoted"),
    ("notice", "left to expire"),
    ("path", "directory is locked"),
    ("path", "cut in a turn"),
    ("path", "a deposed primary is silent"),
    ("path", "a failover with open writes"),
    ("path", "proven dead"),
    ("path", "adopted"),
    ("path", "own ended claim taken over"),
    ("path", "too many calls"),
];

impl Coverage {
    pub(super) fn hit(&mut self, kind: &'static str, what: &'static str) {
        *self.counts.entry((kind, what, "")).or_default() += 1;
    }

    pub(super) fn fault(&mut self, fault: Fault) {
        *self.faults.entry(fault).or_default() += 1;
    }

    pub(super) fn transition(&mut self, transition: &Transition) {
        let Transition {
            from, to, reason, ..
        } = transition;
        let key = ("change", from.as_str(), to.as_str());
        *self.counts.entry(key).or_default() += 1;
        if let Some(reason) = reason {
            self.hit("reason", reason.as_str());
        }
    }

    pub(super) fn notice(&mut self, notice: &Notice) {
        self.hit(
            "notice",
            match notice {
                Notice::Overtook { .. } => "overtook",
                Notice::Succeeded { .. } => "succeeded",
                Notice::StoreWentBack { .. } => "store went back",
                Notice::Duplicate { .. } => "duplicate",
                Notice::Foreign { .. } => "foreign",
                Notice::AbsurdDuration { .. } => "absurd duration",
                Notice::BackingOff { .. } => "backing off",
                Notice::NotDemoted { .. } => "not demoted",
                Notice::LeftToExpire => "left to expire",
                Notice::TokensExhausted => "tokens exhausted",
            },
        );
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (key, count) in &other.counts {
            *self.counts.entry(*key).or_default() += count;
        }
        for (fault, count) in &other.faults {
            *self.faults.entry(*fault).or_default() += count;
        }
    }

    /// What should have been hit and was not.
    pub(super) fn missing(&self) -> Vec<String> {
        let faults = Fault::ALL.iter().filter(|f| !self.faults.contains_key(f));
        let changes = CHANGES
            .iter()
            .map(|(from, to)| ("change", from.as_str(), to.as_str()));
        let came = |r: &&Reason| !REASONS_TO_COME.contains(r) && **r != Reason::Renewed;
        let reasons = Reason::ALL
            .iter()
            .filter(came)
            .map(|r| ("reason", r.as_str(), ""));
        let paths = PATHS.iter().map(|(kind, what)| (*kind, *what, ""));
        let keys = changes.chain(reasons).chain(paths);
        let keys = keys.filter(|key| !self.counts.contains_key(key));
        faults
            .map(|fault| format!("{fault:?}"))
            .chain(keys.map(|key| format!("{key:?}")))
            .collect()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (fault, count) in &self.faults {
            writeln!(f, "{count:>12}  fault      {fault:?}")?;
        }
        for ((kind, what, to), count) in &self.counts {
            let arrow = if to.is_empty() { "" } else { " -> " };
            writeln!(f, "{count:>12}  {kind:<9}  {what}{arrow}{to}")?;
        }
        Ok(())
    }
}
