//! A guard sends its child a stop signal or SIGKILL only for a valid reason. If a renewal has
//! extended the deadline, the earlier deadline is not a valid reason.

use std::time::Duration;

use super::{Violation, require, with};

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct End {
    /// True for SIGKILL, and false for the stop signal.
    pub(crate) killed: bool,
    pub(crate) orphaned: bool,
    pub(crate) given_up: bool,
    /// The newest record that the guard has read orders the child to stop.
    pub(crate) stopped: bool,
    pub(crate) stop_over: bool,
    /// The child's leader has exited, and only descendants remain.
    pub(crate) left_behind: bool,
    /// The deadline of the newest record has passed. For SIGKILL, the grace period has also passed.
    pub(crate) expired: bool,
    /// How long the daemon and the guard have been able to learn of an acknowledged renewal that
    /// extends this deadline. `None` if no renewal extends the deadline, or if the claim is lost.
    pub(crate) renewed_for: Option<Duration>,
    pub(crate) latency_max: Duration,
}

pub(crate) fn check(end: End) -> Option<Violation> {
    let renewed = end.renewed_for.is_some_and(|known| known > end.latency_max);
    let by_deadline = end.expired && !renewed;
    let caused = match end.killed {
        true => end.given_up || end.stop_over || end.left_behind || by_deadline,
        false => end.orphaned || end.given_up || end.stopped || end.left_behind || by_deadline,
    };
    require(caused, "children have their time", &end)
}

const LATENCY_MAX: Duration = Duration::from_millis(20);

fn quiet() -> End {
    with(End::default(), |it| it.latency_max = LATENCY_MAX)
}

#[test]
fn each_cause_is_one() {
    let expired = with(quiet(), |it| it.expired = true);
    for end in [
        expired,
        with(quiet(), |it| it.orphaned = true),
        with(quiet(), |it| it.stopped = true),
        with(quiet(), |it| (it.killed, it.stop_over) = (true, true)),
        with(quiet(), |it| (it.killed, it.given_up) = (true, true)),
        with(expired, |it| it.killed = true),
        with(expired, |it| it.renewed_for = Some(LATENCY_MAX)),
    ] {
        assert_eq!(check(end), None, "{end:?}");
    }
}

#[test]
fn without_one_it_goes_on() {
    let killed = with(quiet(), |it| it.killed = true);
    for end in [
        quiet(),
        killed,
        with(killed, |it| (it.stopped, it.orphaned) = (true, true)),
        with(quiet(), |it| {
            (it.expired, it.renewed_for) = (true, Some(Duration::from_millis(21)))
        }),
    ] {
        assert!(check(end).is_some(), "{end:?}");
    }
}
