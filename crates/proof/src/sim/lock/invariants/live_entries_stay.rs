//! A process that runs and reaches the store keeps its entry. No other process evicts the entry,
//! and the process reports no loss without a cause.

use super::{Violation, require, with};

/// An entry that another process evicted, or that its owner reports as lost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken {
    /// The owner has run without a pause for longer than its lease.
    pub(crate) owner_runs: bool,
    pub(crate) reliable: bool,
    pub(crate) stored: bool,
    /// Another process evicted the entry. If false, the owner reports the entry as lost.
    pub(crate) evicted: bool,
}

pub(crate) fn check(taken: Taken) -> Option<Violation> {
    let wrong = match taken.evicted {
        true => taken.owner_runs && taken.reliable,
        false => taken.stored,
    };
    require(!wrong, "live entries stay", &taken)
}

const EVICTED: Taken = Taken {
    owner_runs: true,
    reliable: true,
    stored: false,
    evicted: true,
};

#[test]
fn expired_entries_are_evicted_and_missing_ones_are_lost() {
    assert_eq!(check(with(EVICTED, |it| it.owner_runs = false)), None);
    assert_eq!(check(with(EVICTED, |it| it.reliable = false)), None);
    assert_eq!(check(with(EVICTED, |it| it.evicted = false)), None);
}

#[test]
fn others_are_found() {
    assert!(check(EVICTED).is_some());
    assert!(check(with(EVICTED, |it| (it.evicted, it.stored) = (false, true))).is_some());
}
