//! A transfer leaves a reservation: the release of a claim that was asked to hand over names the
//! candidate that may acquire first, and for how long (*Requests* in `docs/protocol.md`).

use super::{Violation, violation};
use crate::election::Reservation;

/// A release that is sent.
#[derive(Debug, Clone, Copy)]
pub(in crate::sim) struct Release<'a> {
    /// The reservation in the request that ended the leadership.
    pub(in crate::sim) transferred: Option<&'a Reservation>,
    pub(in crate::sim) reserves: Option<&'a Reservation>,
}

pub(in crate::sim) fn check(release: Release<'_>) -> Option<Violation> {
    if release.transferred == release.reserves {
        None
    } else {
        violation("transfers reserve", format!("{release:?}"))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::election::Identity;

    #[test]
    fn a_reservation_comes_with_a_transfer_as_it_was_asked_for() {
        let to = |name, seconds| Reservation {
            identity: Identity::new(name).expect("legal"),
            duration: Duration::from_secs(seconds),
        };
        let (asked, other, shorter) = (to("b", 5), to("c", 5), to("b", 4));
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
}
