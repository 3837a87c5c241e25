//! I6: a release is sent only when no surface says "leader" any more and the
//! workload is gone, or its time to end has passed. A supervised one is gone:
//! no time passes for it. Nor does another claim of the same process begin
//! beside it, or that of a successor on the same status directory.

use super::{Violation, violation};

/// What is true when a release is sent.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::sim) struct Release {
    /// The claim never led here: nothing is to be stopped.
    pub(in crate::sim) never_led: bool,
    /// Its deadline has passed, and its workload has had its time to notice.
    pub(in crate::sim) expired: bool,
    /// It was released before, and the outcome was not clear.
    pub(in crate::sim) repeated: bool,
    /// The workload confirmed, or its time has passed.
    pub(in crate::sim) drained: bool,
    /// A child of this process runs.
    pub(in crate::sim) child_runs: bool,
    /// HTTP says "leader".
    pub(in crate::sim) http_says_leader: bool,
    /// A file says "leader" to a reader that checks the deadline.
    pub(in crate::sim) file_says_leader: bool,
}

pub(in crate::sim) fn check(release: Release) -> Option<Violation> {
    let Release {
        never_led,
        expired,
        repeated,
        drained,
        child_runs,
        http_says_leader,
        file_says_leader,
    } = release;
    let gone = never_led || expired || repeated || drained;
    if gone && !child_runs && !http_says_leader && !file_says_leader {
        None
    } else {
        violation("I6", format!("{release:?}"))
    }
}

/// What is true when an acquire or a take-over is sent.
#[derive(Debug, Clone, Copy)]
pub(in crate::sim) struct Acquisition {
    /// A child of an earlier claim of this process runs.
    pub(in crate::sim) child_runs: bool,
    /// What is taken is the claim of a process that is proven dead, and its child runs.
    pub(in crate::sim) orphan_runs: bool,
}

pub(in crate::sim) fn check_acquisition(acquisition: Acquisition) -> Option<Violation> {
    let Acquisition {
        child_runs,
        orphan_runs,
    } = acquisition;
    if child_runs || orphan_runs {
        violation("I6", format!("{acquisition:?}"))
    } else {
        None
    }
}

/// What is true when a lease that was released is acquired.
#[derive(Debug, Clone, Copy)]
pub(in crate::sim) struct Beside {
    /// The workload beside the releaser works under the released claim: it has
    /// not looked since.
    pub(in crate::sim) works: bool,
    /// The next leader is on another machine.
    pub(in crate::sim) elsewhere: bool,
    /// Somebody damaged the document or forked a machine; or that workload did
    /// not run when it was to look.
    pub(in crate::sim) excused: bool,
}

pub(in crate::sim) fn check_beside(beside: Beside) -> Option<Violation> {
    let Beside {
        works,
        elsewhere,
        excused,
    } = beside;
    if works && elsewhere && !excused {
        violation("I6", format!("{beside:?}"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_after_the_drain_is_in_order() {
        let release = Release {
            drained: true,
            ..Release::default()
        };
        assert_eq!(check(release), None);
    }

    #[test]
    fn a_release_before_the_drain_or_beside_a_surface_is_not() {
        let drained = Release {
            drained: true,
            ..Release::default()
        };
        assert!(check(Release::default()).is_some());
        for release in [
            Release {
                http_says_leader: true,
                ..drained
            },
            Release {
                file_says_leader: true,
                ..drained
            },
            Release {
                child_runs: true,
                ..drained
            },
        ] {
            assert!(check(release).is_some(), "{release:?}");
        }
    }

    #[test]
    fn a_workload_that_has_not_looked_keeps_others_from_leading() {
        let beside = Beside {
            works: true,
            elsewhere: true,
            excused: false,
        };
        assert!(check_beside(beside).is_some());
        for fine in [
            Beside {
                works: false,
                ..beside
            },
            Beside {
                elsewhere: false,
                ..beside
            },
            Beside {
                excused: true,
                ..beside
            },
        ] {
            assert_eq!(check_beside(fine), None);
        }
    }

    #[test]
    fn nothing_is_acquired_beside_a_child_of_before() {
        let acquisition = |child_runs, orphan_runs| Acquisition {
            child_runs,
            orphan_runs,
        };
        assert_eq!(check_acquisition(acquisition(false, false)), None);
        assert!(check_acquisition(acquisition(true, false)).is_some());
        assert!(check_acquisition(acquisition(false, true)).is_some());
    }
}
