//! A transfer leaves a reservation. If a claim was asked to hand over, its release names the
//! candidate that may acquire first, and the length of this reservation (*Requests* in
//! `docs/protocol.md`). Any other release reserves the lease for no longer than the standby's head
//! start.

use std::time::Duration;

use super::{Violation, require, reservation};
use crate::election::Reservation;

const HEAD_START_MAX: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Release<'a> {
    pub(crate) transferred: Option<&'a Reservation>,
    pub(crate) reserves: Option<&'a Reservation>,
    pub(crate) paused: bool,
}

pub(crate) fn check(release: Release<'_>) -> Option<Violation> {
    let in_order = match (release.transferred, release.reserves) {
        (None, Some(standby)) => standby.duration <= HEAD_START_MAX && !release.paused,
        (asked, reserves) => asked == reserves,
    };
    require(in_order, "transfers reserve", &release)
}

#[test]
fn a_reservation_comes_with_a_transfer_as_it_was_asked_for() {
    let [asked, other, shorter] = [("b", 5), ("c", 5), ("b", 4)].map(|(to, s)| reservation(to, s));
    let release = |transferred, reserves| Release {
        transferred,
        reserves,
        paused: false,
    };
    assert_eq!(check(release(Some(&asked), Some(&asked))), None);
    assert_eq!(check(release(None, None)), None);
    for wrong in [None, Some(&other), Some(&shorter)] {
        assert!(check(release(Some(&asked), wrong)).is_some());
    }
    assert!(check(release(None, Some(&asked))).is_some());
    let standby = Reservation {
        duration: HEAD_START_MAX,
        ..asked.clone()
    };
    assert_eq!(check(release(None, Some(&standby))), None);
    assert!(check(release(Some(&asked), Some(&standby))).is_some());
    let paused = Release {
        paused: true,
        ..release(None, Some(&standby))
    };
    assert!(check(paused).is_some());
}
