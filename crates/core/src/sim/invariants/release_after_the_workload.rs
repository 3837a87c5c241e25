//! I6: a release is sent only when no surface says "leader" any longer and the workload is gone, or
//! its time to notice has passed. A supervised workload must be gone, whatever time has passed.
//! Meanwhile neither the same process nor a successor on the same status directory begins another
//! claim.

use super::{Violation, violation};

/// The facts when a release is sent.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::sim) struct Release {
    /// True if the claim never led here, so nothing has to be stopped.
    pub(in crate::sim) never_led: bool,
    /// True if its deadline has passed, and its workload has had its time to notice.
    pub(in crate::sim) expired: bool,
    /// True if the claim was released before, with an unclear outcome.
    pub(in crate::sim) repeated: bool,
    /// True if the workload confirmed, or its time has passed.
    pub(in crate::sim) drained: bool,
    /// True if a child of this process runs.
    pub(in crate::sim) child_runs: bool,
    /// True if HTTP says "leader".
    pub(in crate::sim) http_says_leader: bool,
    /// True if a file says "leader" to a reader that checks the deadline.
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

/// The facts when an acquire or a takeover is sent.
#[derive(Debug, Clone, Copy)]
pub(in crate::sim) struct Acquisition {
    /// True if a child of an earlier claim of this process runs.
    pub(in crate::sim) child_runs: bool,
    /// True if the claim of a process that is proven dead is taken over while its child runs.
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

/// The facts when a released lease is acquired.
#[derive(Debug, Clone, Copy)]
pub(in crate::sim) struct Beside {
    /// True if the releaser's workload still works under the released claim, because it has not
    /// checked since.
    pub(in crate::sim) works: bool,
    /// True if the next leader is on another machine.
    pub(in crate::sim) elsewhere: bool,
    /// True if the document was damaged or a machine forked, or if that workload did not run when
    /// its check was due.
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
