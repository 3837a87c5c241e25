//! A contender evicts an entry only after replies have shown the entry unchanged for long enough,
//! and never within the entry's minimum hold. A granted entry must be unchanged for the time
//! allowed for its confirmation. Any other entry must be unchanged for the lease duration that its
//! owner declared.

use std::time::Duration;

use super::{Violation, require, with};
use crate::election::{BootTime, Claim, Declared, Revision};
use crate::lock::EntryVersion;
use crate::proof::sim::lock::entries::ObservedEntry;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Eviction {
    pub(crate) pair: EntryVersion,
    pub(crate) shown: Option<ObservedEntry<BootTime>>,
    pub(crate) at: BootTime,
    pub(crate) operation_timeout: Duration,
}

pub(crate) fn check(eviction: Eviction) -> Option<Violation> {
    let due = |shown: ObservedEntry<BootTime>| {
        let granted = shown.holds && !shown.confirmed;
        let wait = if shown.work_done {
            Duration::ZERO
        } else if granted {
            let share = shown.lease_duration.duration() / 8;
            eviction.operation_timeout.max(share)
        } else {
            shown.lease_duration.duration()
        };
        let due = (shown.since + wait).max(shown.kept_until.unwrap_or_default());
        shown.revision == eviction.pair.revision && due <= eviction.at
    };
    let is_due = eviction.shown.is_some_and(due);
    require(is_due, "evictions are due", &eviction)
}

fn eviction(holds: bool, confirmed: bool, after: u64) -> Eviction {
    let pair = EntryVersion {
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
            min_hold: Duration::ZERO,
            work_done: false,
            since: BootTime::from_nanos(0),
            kept_until: None,
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
    let kept = |after| {
        let mut kept = eviction(true, true, after);
        if let Some(shown) = &mut kept.shown {
            let until = BootTime::from_nanos(0) + Duration::from_secs(30);
            (shown.work_done, shown.kept_until) = (true, Some(until));
        }
        kept
    };
    assert!(check(kept(29)).is_some());
    assert_eq!(check(kept(30)), None);
    let mut changed = eviction(true, true, 24);
    changed.pair.revision = Revision::from_bytes([2; 16]);
    assert!(check(changed).is_some());
    assert!(check(with(changed, |it| it.shown = None)).is_some());
}
