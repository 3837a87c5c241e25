//! A child is asked to end, or killed, only with a cause; and a deadline is
//! one only if no renewal has carried it on.

use std::time::Duration;

use super::{Violation, violation};

/// A child that its guard asks to end, or kills.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::sim) struct End {
    /// It was killed, not asked.
    pub(in crate::sim) killed: bool,
    /// Its daemon is gone.
    pub(in crate::sim) orphaned: bool,
    /// The newest record that was read asks for its end.
    pub(in crate::sim) stopped: bool,
    /// The time that this record gives it is over.
    pub(in crate::sim) stop_over: bool,
    /// Its leader has ended by itself: it is what was left behind.
    pub(in crate::sim) left_behind: bool,
    /// The deadline of the newest record has passed; killed: by its grace.
    pub(in crate::sim) expired: bool,
    /// An acknowledged renewal of a claim that is not lost carries that
    /// deadline on: for so long daemon and guard could have known it.
    pub(in crate::sim) renewed_for: Option<Duration>,
    /// A record is under way for less than this.
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
