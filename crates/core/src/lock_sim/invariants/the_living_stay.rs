//! Who runs and reaches the store keeps its place: nobody takes it out, and
//! it is not lost for nothing.

use crate::sim::invariants::{Violation, violation};

/// An entry that somebody else took out, or that its owner calls lost.
#[derive(Debug, Clone, Copy)]
pub(in crate::lock_sim) struct Taken {
    /// Its owner has run without a pause for longer than its lease.
    pub(in crate::lock_sim) owner_runs: bool,
    /// Every call is answered soon.
    pub(in crate::lock_sim) reliable: bool,
    /// A majority has it, with a revision that its owner knows.
    pub(in crate::lock_sim) stored: bool,
    /// It was taken out; else its owner calls it lost.
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
