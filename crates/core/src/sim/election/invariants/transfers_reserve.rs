//! A transfer leaves a reservation: the release of a claim that was asked to hand over names the
//! candidate that may acquire first, and for how long (*Requests* in `docs/protocol.md`).

use super::{Violation, require, reservation};
use crate::election::Reservation;

/// A release that is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Release<'a> {
    /// The reservation in the request that ended the leadership.
    pub(crate) transferred: Option<&'a Reservation>,
    pub(crate) reserves: Option<&'a Reservation>,
}

pub(crate) fn check(release: Release<'_>) -> Option<Violation> {
    let as_asked = release.transferred == release.reserves;
    require(as_asked, "transfers reserve", &release)
}

#[test]
fn a_reservation_comes_with_a_transfer_as_it_was_asked_for() {
    let [asked, other, shorter] = [("b", 5), ("c", 5), ("b", 4)].map(|(to, s)| reservation(to, s));
    let release = |transferred, reserves| Release {
        transferred,
        reserves,
    };
    assert_eq!(check(release(Some(&asked), Some(&asked))), None);
    assert_eq!(check(release(None, None)), None);
    for wrong in [None, Some(&other), Some(&shorter)] {
        assert!(check(release(Some(&asked), wrong)).is_some());
    }
    assert!(check(release(None, Some(&asked))).is_some());
}
