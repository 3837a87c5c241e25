//! An entry is evicted only after replies showed it unchanged for as long as its owner declared,
//! or, if granted, for as long as a grantee has to confirm.

use std::time::Duration;

use super::{Violation, require, with};
use crate::election::{BootTime, Claim, Declared, Revision};
use crate::lock::Seen;
use crate::sim::lock::entries::ObservedEntry;

/// One entry of an eviction at the time it is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Eviction {
    pub(crate) pair: Seen,
    /// The entry as last shown to its sender.
    pub(crate) shown: Option<ObservedEntry<BootTime>>,
    pub(crate) at: BootTime,
    pub(crate) operation_timeout: Duration,
}

pub(crate) fn check(eviction: Eviction) -> Option<Violation> {
    let due = |shown: ObservedEntry<BootTime>| {
        let granted = shown.holds && !shown.confirmed;
        let wait = if granted {
            let share = shown.lease_duration.duration() / 8;
            eviction.operation_timeout.max(share)
        } else {
            shown.lease_duration.duration()
        };
        shown.revision == eviction.pair.revision && shown.since + wait <= eviction.at
    };
    let is_due = eviction.shown.is_some_and(due);
    require(is_due, "evictions are due", &eviction)
}

fn eviction(holds: bool, confirmed: bool, after: u64) -> Eviction {
    let pair = Seen {
        claim: Claim::from_bytes([1; 16]),
        revision: Revision::from_bytes([1; 16]),
    };
    Eviction {
        pair,
        shown: Some(ObservedEntry {
            revision: pair.revision,
            holds,
            confirmed,
            lease_duration: Declared { millis: 24_000 },
            since: BootTime::from_nanos(0),
        }),
        at: BootTime::from_nanos(0) + Duration::from_secs(after),
        operation_timeout: Duration::from_secs(3),
    }
}

#[test]
fn an_entry_that_was_unchanged_for_long_enough_is_evicted() {
    for due in [
        eviction(true, true, 24),
        eviction(false, false, 24),
        eviction(true, false, 3),
    ] {
        assert_eq!(check(due), None);
    }
}

#[test]
fn an_eviction_that_is_early_or_of_another_revision_is_found() {
    for early in [
        eviction(true, true, 23),
        eviction(false, false, 3),
        eviction(true, false, 2),
    ] {
        assert!(check(early).is_some());
    }
    let mut changed = eviction(true, true, 24);
    changed.pair.revision = Revision::from_bytes([2; 16]);
    assert!(check(changed).is_some());
    assert!(check(with(changed, |it| it.shown = None)).is_some());
}
