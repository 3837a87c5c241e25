//! The priority of a standby ends a leadership only if the leader prefers standbys of higher
//! priority. The leader hands over at most once per configured interval, and only to a candidate
//! with a higher priority that registered again on request. A registration replaces only a standby
//! with a lower priority (*The standby* in `docs/protocol.md`).

use std::time::Duration;

use super::{Violation, require, with};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Handover {
    /// The configured interval, or `None` if the leader prefers no candidate.
    pub(crate) interval: Option<Duration>,
    pub(crate) led: Duration,
    /// True time since the last handover of any leader.
    pub(crate) since_last: Option<Duration>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Preferred {
    pub(crate) own: u32,
    pub(crate) priority: u32,
    pub(crate) answered: bool,
}

pub(crate) fn check(handover: Handover) -> Option<Violation> {
    let interval = handover.interval;
    let due = interval.is_some_and(|interval| {
        handover.led >= interval && handover.since_last.is_none_or(|since| since >= interval)
    });
    require(due, "preference is bounded", &handover)
}

pub(crate) fn check_preferred(to: Preferred) -> Option<Violation> {
    let preferred = to.priority > to.own && to.answered;
    require(preferred, "preference is bounded", &to)
}

/// Checks that a new standby has a higher priority than the previous standby, if there was one.
pub(crate) fn check_registration(before: Option<u32>, after: u32) -> Option<Violation> {
    let higher = before.is_none_or(|before| before < after);
    require(higher, "preference is bounded", &(before, after))
}

#[test]
fn a_handover_is_due_once_in_the_interval_of_a_leader_that_prefers() {
    let seconds = Duration::from_secs;
    let due = Handover {
        interval: Some(seconds(30)),
        led: seconds(30),
        since_last: Some(seconds(30)),
    };
    assert_eq!(check(due), None);
    assert_eq!(check(with(due, |it| it.since_last = None)), None);
    for wrong in [
        with(due, |it| it.interval = None),
        with(due, |it| it.led = seconds(29)),
        with(due, |it| it.since_last = Some(seconds(29))),
    ] {
        assert!(check(wrong).is_some());
    }
}

#[test]
fn it_goes_to_a_candidate_that_is_preferred_and_alive() {
    let to = Preferred {
        own: 1,
        priority: 2,
        answered: true,
    };
    assert_eq!(check_preferred(to), None);
    assert!(check_preferred(with(to, |it| it.priority = 1)).is_some());
    assert!(check_preferred(with(to, |it| it.answered = false)).is_some());
}

#[test]
fn a_registration_replaces_less() {
    assert_eq!(check_registration(None, 0), None);
    assert_eq!(check_registration(Some(1), 2), None);
    assert!(check_registration(Some(1), 1).is_some());
}
