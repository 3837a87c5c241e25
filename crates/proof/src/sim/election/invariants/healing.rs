//! I10: within a bound, exactly one candidate leads, and continues to lead. The lease must not be
//! paused, the store must be reachable, and the candidates must be healthy. The bound follows from
//! the durations.

use std::time::Duration;

use super::{Violation, violation};
use crate::election::Token;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Longest {
    pub(crate) lease_duration: Duration,
    pub(crate) reservation: Duration,
    pub(crate) operation_timeout: Duration,
    pub(crate) retry_interval: Duration,
    pub(crate) workload_end: Duration,
    /// The rate of the slowest clock, in per mille of true time.
    pub(crate) rate: u32,
}

/// Returns the sum, on the slowest clock, of the declared lease duration, a reservation, the time
/// that a holder waits for its workload, and 2 × (timeout + retry).
pub(crate) fn bound(longest: Longest) -> Duration {
    let retries = 2 * (longest.operation_timeout + longest.retry_interval * 6 / 5);
    (longest.lease_duration + longest.reservation + longest.workload_end + retries) * 1000
        / longest.rate
}

/// Checks the leaders when the bound has passed, and again later. In the later check, `before` is
/// the leader of the first check.
pub(crate) fn check(
    leaders: &[Token],
    before: Option<Token>,
    waited: Duration,
) -> Option<Violation> {
    let because =
        |what: String| violation("I10", format!("{what} after {waited:?} without faults"));
    match leaders {
        [leader] if before.is_none_or(|token| token == *leader) => None,
        [leader] => because(format!("token {leader} leads instead of {before:?}")),
        _ => because(format!("{} leaders", leaders.len())),
    }
}

pub(crate) fn check_child(without: Option<usize>) -> Option<Violation> {
    let process = without?;
    let evidence = format!("p{process} leads, and its child does not run");
    violation("I10", evidence)
}

/// Checks that no daemon waits for an earlier workload, or for a guard in another container.
pub(crate) fn check_waiting(waits: Option<usize>) -> Option<Violation> {
    let process = waits?;
    let evidence = format!("p{process} cannot lead, and waits for its workload or guard");
    violation("I10", evidence)
}

#[test]
fn exactly_one_leader_is_healthy() {
    let [one, two] = [1, 2].map(|n| Token::new(n).expect("positive"));
    let waited = Duration::ZERO;
    assert_eq!(check(&[one], None, waited), None);
    assert_eq!(check(&[one], Some(one), waited), None);
    assert!(check(&[], None, waited).is_some());
    assert!(check(&[one, two], None, waited).is_some());
    assert!(check(&[two], Some(one), waited).is_some());
}

#[test]
fn a_leader_without_its_child_is_not_healthy() {
    assert_eq!(check_child(None), None);
    assert_eq!(check_waiting(None), None);
    assert!(check_waiting(Some(1)).is_some());
    assert!(check_child(Some(1)).is_some());
}

#[test]
fn the_bound_is_the_one_of_the_protocol() {
    let seconds = Duration::from_secs;
    let bound = bound(Longest {
        lease_duration: seconds(24),
        reservation: seconds(5),
        operation_timeout: seconds(3),
        retry_interval: seconds(1),
        workload_end: Duration::ZERO,
        rate: 1000,
    });
    assert_eq!(bound, Duration::from_millis(37_400));
}
