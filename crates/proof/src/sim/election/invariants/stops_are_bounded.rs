//! I10: a step-down ends in time. Without a bound, a candidate whose workload survives SIGKILL
//! would renew the lease indefinitely although it does not lead.

use std::time::Duration;

use super::{Violation, require, with};

/// Must equal the value in `crates/supervisor/src/command.rs`.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(1);
/// Maximum time until orders and reports have arrived and the processes have acted on them.
const LATENCY_MAX: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Stop {
    /// Time since the step-down began or since the process last resumed after a freeze, whichever
    /// is shorter.
    pub(crate) lasts: Duration,
    /// Time from the stop signal to SIGKILL.
    pub(crate) grace: Duration,
    pub(crate) loss_grace: Duration,
    /// The time allowed for readers of stuck files and an unsupervised workload to notice the loss.
    pub(crate) notice: Duration,
}

pub(crate) fn check(stop: Stop) -> Option<Violation> {
    let workload = stop.grace + stop.loss_grace + CONFIRMED_WITHIN;
    let most = workload + stop.notice + LATENCY_MAX;
    require(stop.lasts <= most, "I10", &stop)
}

#[test]
fn a_stop_ends_when_every_wait_is_over() {
    let stop = Stop {
        lasts: Duration::from_secs(55),
        grace: Duration::from_secs(30),
        loss_grace: Duration::from_secs(3),
        notice: Duration::from_secs(20),
    };
    assert_eq!(check(stop), None);
    let endless = with(stop, |it| it.lasts = Duration::from_secs(56));
    assert!(check(endless).is_some());
}
