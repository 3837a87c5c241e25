//! A transfer leaves a reservation: the release of a claim that was asked to
//! hand over names who may acquire first (*Requests* in `docs/protocol.md`).

use super::{Violation, violation};

/// A release as it is sent.
#[derive(Debug, Clone, Copy)]
pub(in crate::sim) struct Release {
    /// Its leadership ended by a transfer.
    pub(in crate::sim) transferred: bool,
    pub(in crate::sim) reserves: bool,
}

pub(in crate::sim) fn check(release: Release) -> Option<Violation> {
    if release.transferred == release.reserves {
        None
    } else {
        violation("transfers reserve", format!("{release:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_comes_with_a_transfer_and_only_then() {
        let release = |transferred, reserves| Release {
            transferred,
            reserves,
        };
        assert_eq!(check(release(true, true)), None);
        assert_eq!(check(release(false, false)), None);
        assert!(check(release(true, false)).is_some());
        assert!(check(release(false, true)).is_some());
    }
}
