//! A follower of hints or of a late stream takes over soon after the lease ends, although it reads
//! each renewal only once. A follower of hints or of a prompt stream acquires a released lease soon
//! (*Hints* in `docs/protocol.md`).

use std::time::Duration;

use super::{Violation, require};

const SEEN_WITHIN: Duration = Duration::from_millis(60);
/// The head start reserved for a standby, plus the delay of the other candidates.
const HEAD_START: Duration = Duration::from_millis(90);
/// Upper bound for two reads and two writes on the simulated network. A takeover needs one read and
/// one write, and repeats both after a rejection.
const CALLS: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Takeover {
    /// Time since the last renewal.
    pub(crate) after: Duration,
    pub(crate) lease_duration: Duration,
}

pub(crate) fn check(takeover: Takeover) -> Option<Violation> {
    let most = takeover.lease_duration + SEEN_WITHIN + HEAD_START + CALLS;
    require(takeover.after <= most, "takeovers are timely", &takeover)
}

/// Checks the time from the release to the next acquisition.
pub(crate) fn check_handoff(after: Duration) -> Option<Violation> {
    let most = SEEN_WITHIN + HEAD_START + CALLS;
    require(after <= most, "handoffs are timely", &after)
}

#[test]
fn a_late_handoff_is_found() {
    assert_eq!(check_handoff(Duration::from_millis(350)), None);
    assert!(check_handoff(Duration::from_millis(351)).is_some());
}

#[test]
fn a_late_takeover_is_found() {
    let takeover = |millis| Takeover {
        after: Duration::from_millis(millis),
        lease_duration: Duration::from_secs(24),
    };
    assert_eq!(check(takeover(24_350)), None);
    assert!(check(takeover(24_351)).is_some());
}
