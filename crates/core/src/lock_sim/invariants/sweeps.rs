//! An entry is evicted only after replies showed it unchanged for as long as its owner declared,
//! or, if granted, for as long as a grantee has to confirm.

use crate::election::BootTime;
use crate::lock::Seen;
use crate::lock_sim::ledger::Shown;
use crate::sim::invariants::{Violation, violation};
use std::time::Duration;

/// One entry of a sweep at the time the sweep is sent.
#[derive(Debug, Clone, Copy)]
pub(in crate::lock_sim) struct Swept {
    pub(in crate::lock_sim) pair: Seen,
    /// The entry as last shown to the sweeper.
    pub(in crate::lock_sim) shown: Option<Shown>,
    pub(in crate::lock_sim) at: BootTime,
    pub(in crate::lock_sim) operation_timeout: Duration,
}

pub(in crate::lock_sim) fn check(swept: Swept) -> Option<Violation> {
    let due = |shown: Shown| {
        let granted = shown.holds && !shown.confirmed;
        let wait = if granted {
            swept.operation_timeout
        } else {
            shown.lease_duration.duration()
        };
        shown.revision == swept.pair.revision && shown.since + wait <= swept.at
    };
    if swept.shown.is_some_and(due) {
        None
    } else {
        violation("sweeps are due", format!("{swept:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::election::{Claim, Declared, Revision};

    fn swept(holds: bool, confirmed: bool, after: u64) -> Swept {
        let pair = Seen {
            claim: Claim::from_bytes([1; 16]),
            revision: Revision::from_bytes([1; 16]),
        };
        Swept {
            pair,
            shown: Some(Shown {
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
    fn whoever_was_silent_for_long_enough_is_swept() {
        for due in [
            swept(true, true, 24),
            swept(false, false, 24),
            swept(true, false, 3),
        ] {
            assert_eq!(check(due), None);
        }
    }

    #[test]
    fn a_sweep_that_comes_early_or_means_another_is_found() {
        for early in [
            swept(true, true, 23),
            swept(false, false, 3),
            swept(true, false, 2),
        ] {
            assert!(check(early).is_some());
        }
        let mut changed = swept(true, true, 24);
        changed.pair.revision = Revision::from_bytes([2; 16]);
        assert!(check(changed).is_some());
        assert!(
            check(Swept {
                shown: None,
                ..changed
            })
            .is_some()
        );
    }
}
