//! A process renews its claim while it leads, and also while its workload ends. Otherwise another
//! candidate could take over before the workload has exited (*The holder* and *Losing leadership*
//! in `docs/protocol.md`). If a renewal hangs, the process sends another renewal.

use std::time::Duration;

use super::{Violation, require};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    /// Time since the process last sent a renewal or last resumed after a freeze, whichever is
    /// shorter.
    pub(crate) idle: Duration,
    /// The sum of a renewal interval, timeouts and retries.
    pub(crate) idle_max: Duration,
}

pub(crate) fn check(held: Held) -> Option<Violation> {
    require(held.idle <= held.idle_max, "held claims are renewed", &held)
}

#[test]
fn a_claim_that_is_left_alone_is_found() {
    let held = |idle| Held {
        idle: Duration::from_secs(idle),
        idle_max: Duration::from_secs(8),
    };
    assert_eq!(check(held(8)), None);
    assert!(check(held(9)).is_some());
}
