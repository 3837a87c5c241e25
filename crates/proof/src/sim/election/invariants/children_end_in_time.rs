//! I5: a child is gone by its deadline, measured by its host's clock, as long as its guard or its
//! daemon runs.
//!
//! While a host sleeps, no process runs, not even a child. After the host wakes or a frozen guard
//! or daemon resumes, the scheduler needs some time to run the guard or the daemon. A child is late
//! only if it outlives this time. If neither guard nor daemon runs, no process can end the child,
//! and only the fencing token protects the data.

use std::time::Duration;

use super::{Violation, explain, with};
use crate::election::BootTime;

/// Clocks and the simulation advance in steps, so the check tolerates one step.
const STEP: Duration = Duration::from_millis(1);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Running {
    pub(crate) now: BootTime,
    /// `sent + renew_deadline + loss_grace` of the last acknowledged renewal, or the deadline in
    /// the guard's orders, whichever is earlier. `None` before the first renewal.
    pub(crate) due: Option<BootTime>,
    /// A deadline that had passed when the guard checked it. The guard then ends the child, even
    /// if its daemon already knows that the claim continues.
    pub(crate) passed: Option<BootTime>,
    /// Time that the guard has run without a pause; `None` if the guard does not run.
    pub(crate) guarded: Option<Duration>,
    /// Time that the daemon has run without a pause; `None` if the daemon does not run.
    pub(crate) kept: Option<Duration>,
    /// Maximum time that a process needs to act after it resumes.
    pub(crate) wake_max: Duration,
    /// Time from the deadline until a daemon considers its guard stuck.
    pub(crate) guard_late_max: Duration,
}

fn lateness(running: Running) -> Duration {
    let due = running.due;
    due.map_or(Duration::MAX, |due| running.now.since(due))
}

pub(crate) fn is_late(running: Running) -> bool {
    lateness(running) > STEP
}

pub(crate) fn check(running: Running) -> Option<Violation> {
    let late = lateness(running);
    let passed = running.passed.map(|passed| running.now.since(passed));
    let late_of_guard = passed.map_or(late, |passed| passed.max(late));
    let acts = |since: Option<Duration>| since.is_some_and(|since| since > running.wake_max);
    let by_guard = acts(running.guarded) && late_of_guard > STEP;
    let by_daemon = acts(running.kept) && late > running.guard_late_max + STEP;
    let evidence = || format!("late by {late_of_guard:?}: {running:?}");
    explain(!by_guard && !by_daemon, "I5", evidence)
}

fn running(now: u64) -> Running {
    let at = |millis| BootTime::default() + Duration::from_millis(millis);
    Running {
        now: at(now),
        due: Some(at(1_000)),
        passed: None,
        guarded: Some(Duration::from_secs(60)),
        kept: Some(Duration::from_secs(60)),
        wake_max: Duration::from_millis(10),
        guard_late_max: Duration::from_millis(100),
    }
}

#[test]
fn until_the_deadline_a_child_may_run() {
    assert_eq!(check(running(1_000)), None);
}

#[test]
fn after_it_guard_or_daemon_must_have_ended_it() {
    assert!(check(running(1_005)).is_some());
    let stopped = |now| with(running(now), |it| it.guarded = None);
    assert_eq!(check(stopped(1_099)), None);
    assert!(check(stopped(1_105)).is_some());
    let alone = with(running(1_005), |it| it.kept = None);
    assert!(check(alone).is_some());
    let without_authority = with(running(0), |it| it.due = None);
    assert!(check(without_authority).is_some());
}

#[test]
fn a_deadline_that_has_passed_is_final_to_the_guard() {
    let revived = with(running(600), |it| {
        it.passed = Some(BootTime::default() + Duration::from_millis(500))
    });
    assert!(check(revived).is_some());
    assert!(!is_late(revived));
    let of_daemon = with(revived, |it| it.guarded = None);
    assert_eq!(check(of_daemon), None);
}

#[test]
fn a_woken_guard_has_a_moment_and_a_sleeping_one_is_not_expected_to_act() {
    let moment = Some(Duration::from_millis(10));
    let woken = with(running(9_000), |it| {
        (it.guarded, it.kept) = (moment, moment)
    });
    assert_eq!(check(woken), None);
    let asleep = with(woken, |it| (it.guarded, it.kept) = (None, None));
    assert_eq!(check(asleep), None);
    let awake = with(woken, |it| it.guarded = Some(Duration::from_millis(11)));
    assert!(check(awake).is_some());
}
