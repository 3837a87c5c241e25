//! A child is asked to end, or killed, only with a cause. A deadline that a renewal has extended is
//! not a cause.

use std::time::Duration;

use super::{Violation, violation};

/// A child that its guard asks to end, or kills.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::sim) struct End {
    /// True if the child is killed, false if it is asked to end.
    pub(in crate::sim) killed: bool,
    /// True if the daemon is gone.
    pub(in crate::sim) orphaned: bool,
    /// True if the newest record that was read asks for the end of the child.
    pub(in crate::sim) stopped: bool,
    /// True if the time that this record gives is over.
    pub(in crate::sim) stop_over: bool,
    /// True if the leader has exited, and only its descendants remain.
    pub(in crate::sim) left_behind: bool,
    /// True if the deadline of the newest record has passed; for a kill, including the grace.
    pub(in crate::sim) expired: bool,
    /// Time for which daemon and guard could have known of an acknowledged renewal that extends
    /// that deadline, if the claim is not lost.
    pub(in crate::sim) renewed_for: Option<Duration>,
    /// Upper bound of the latency of a record.
    pub(in crate::sim) latency_max: Duration,
}

pub(in crate::sim) fn check(end: End) -> Option<Violation> {
    let renewed = end.renewed_for.is_some_and(|known| known > end.latency_max);
    let by_deadline = end.expired && !renewed;
    let caused = match end.killed {
        true => end.stop_over || end.left_behind || by_deadline,
        false => end.orphaned || end.stopped || end.left_behind || by_deadline,
    };
    if caused {
        None
    } else {
        violation("children have their time", format!("{end:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: End = End {
        killed: false,
        orphaned: false,
        stopped: false,
        stop_over: false,
        left_behind: false,
        expired: false,
        renewed_for: None,
        latency_max: Duration::from_millis(20),
    };

    #[test]
    fn each_cause_is_one() {
        let expired = End {
            expired: true,
            ..QUIET
        };
        for end in [
            expired,
            End {
                orphaned: true,
                ..QUIET
            },
            End {
                stopped: true,
                ..QUIET
            },
            End {
                killed: true,
                stop_over: true,
                ..QUIET
            },
            End {
                killed: true,
                ..expired
            },
            End {
                renewed_for: Some(QUIET.latency_max),
                ..expired
            },
        ] {
            assert_eq!(check(end), None, "{end:?}");
        }
    }

    #[test]
    fn without_one_it_goes_on() {
        let killed = End {
            killed: true,
            ..QUIET
        };
        for end in [
            QUIET,
            killed,
            End {
                stopped: true,
                orphaned: true,
                ..killed
            },
            End {
                expired: true,
                renewed_for: Some(Duration::from_millis(21)),
                ..QUIET
            },
        ] {
            assert!(check(end).is_some(), "{end:?}");
        }
    }
}
