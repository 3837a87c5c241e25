//! A process that runs and reaches the store keeps its place. Its entry is not evicted, and it does
//! not report a loss without a cause.

use crate::sim::invariants::{Violation, violation};

/// An entry that another process evicted, or that its owner reports as lost.
#[derive(Debug, Clone, Copy)]
pub(in crate::lock_sim) struct Taken {
    /// The owner has run without a pause for longer than its lease.
    pub(in crate::lock_sim) owner_runs: bool,
    /// Every call is answered soon.
    pub(in crate::lock_sim) reliable: bool,
    /// A majority has the entry, with a revision that its owner knows.
    pub(in crate::lock_sim) stored: bool,
    /// True if the entry was evicted; false if its owner reports it as lost.
    pub(in crate::lock_sim) swept: bool,
}

pub(in crate::lock_sim) fn check(taken: Taken) -> Option<Violation> {
    let wrong = if taken.swept {
        taken.owner_runs && taken.reliable
    } else {
        taken.stored
    };
    wrong.then_some(())?;
    violation("the living stay", format!("{taken:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWEPT: Taken = Taken {
        owner_runs: true,
        reliable: true,
        stored: false,
        swept: true,
    };

    #[test]
    fn the_silent_are_taken_out_and_what_is_gone_is_lost() {
        assert_eq!(
            check(Taken {
                owner_runs: false,
                ..SWEPT
            }),
            None
        );
        assert_eq!(
            check(Taken {
                reliable: false,
                ..SWEPT
            }),
            None
        );
        assert_eq!(
            check(Taken {
                swept: false,
                ..SWEPT
            }),
            None
        );
    }

    #[test]
    fn others_are_found() {
        assert!(check(SWEPT).is_some());
        assert!(
            check(Taken {
                swept: false,
                stored: true,
                ..SWEPT
            })
            .is_some()
        );
    }
}
