//! I6: a release is sent only when no surface says "leader" any more and the
//! workload is gone, or its time to end has passed.

use super::{Violation, violation};

/// What is true when a release is sent.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::sim) struct Release {
    /// The claim never led here: nothing is to be stopped.
    pub(in crate::sim) never_led: bool,
    /// Its deadline has passed.
    pub(in crate::sim) expired: bool,
    /// It was released before, and the outcome was not clear.
    pub(in crate::sim) repeated: bool,
    /// The workload confirmed, or its time has passed.
    pub(in crate::sim) drained: bool,
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
        http_says_leader,
        file_says_leader,
    } = release;
    let gone = never_led || expired || repeated || drained;
    if gone && !http_says_leader && !file_says_leader {
        None
    } else {
        violation("I6", format!("{release:?}"))
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
        ] {
            assert!(check(release).is_some(), "{release:?}");
        }
    }
}
