//! Coarse timers while the election is idle.
//!
//! Two thirds of an idle daemon's wake-ups come from the driver's connection pools, which poll
//! twice per second. The driver has no option to disable this polling. With timer slack, the kernel
//! may delay timers, so that one wake-up handles several of them. The election uses timerfds on
//! CLOCK_BOOTTIME, which have no slack. The slack is set only while the thread waits, because a new
//! process or thread would inherit it.

use std::future::Future;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::thread::{current_timer_slack, set_current_timer_slack};

use crate::cli::{CommandError, run_with};
use crate::clock::boot_now;
use crate::election::BootTime;
use crate::exit;

/// Maximum delay of a timer while the election is idle.
const SLACK: Duration = Duration::from_secs(1);

/// The election counts as idle after this time without a failure or change. This is usually long
/// enough for the driver to find the new primary after a MongoDB election. If it is not, a call
/// that waits for the primary keeps the timers exact.
const SETTLES_IN: Duration = Duration::from_secs(10);

/// A timer with a shorter period must be exact.
pub(super) const EXACT_BELOW: Duration = Duration::from_secs(5);

/// Tracks whether the election is idle: no store call is in flight, the source of changes works,
/// and nothing has failed or changed for [`SETTLES_IN`].
#[derive(Debug, Default)]
pub(super) struct IdleTimers {
    allowed: AtomicBool,
    calls: AtomicBool,
    blind: AtomicBool,
    /// Nanoseconds since boot.
    settled_at: AtomicU64,
}

impl IdleTimers {
    /// Allows coarse timers once the election is idle.
    pub(super) fn allow(&self) {
        self.disturbed();
        self.allowed.store(true, Ordering::Relaxed);
    }

    /// Keeps timers exact from now on, because the daemon is stopping.
    pub(super) fn forbid(&self) {
        self.allowed.store(false, Ordering::Relaxed);
    }

    pub(super) fn disturbed(&self) {
        let settled = boot_now() + SETTLES_IN;
        self.settled_at.store(settled.as_nanos(), Ordering::Relaxed);
    }

    pub(super) fn calls(&self, in_flight: usize) {
        self.calls.store(in_flight > 0, Ordering::Relaxed);
    }

    /// Records whether the daemon is notified of changes to the lease.
    pub(super) fn follows(&self, follows: bool) {
        self.blind.store(!follows, Ordering::Relaxed);
        if !follows {
            self.disturbed();
        }
    }

    fn is_at(&self, now: BootTime) -> bool {
        let settled_at = self.settled_at.load(Ordering::Relaxed);
        self.allowed.load(Ordering::Relaxed)
            && !self.calls.load(Ordering::Relaxed)
            && !self.blind.load(Ordering::Relaxed)
            && now.as_nanos() >= settled_at
    }
}

/// Runs a future on this thread, with coarse timers while the election is idle.
pub(super) fn run_to_end<T>(
    idle_timers: &Arc<IdleTimers>,
    command: impl Future<Output = T>,
) -> Result<T, CommandError> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    // If the initial slack cannot be read, the slack stays unchanged, because it could not be
    // restored.
    if let Ok(usual) = current_timer_slack() {
        let waiting = Arc::new(Slack {
            idle_timers: Arc::clone(idle_timers),
            usual,
            coarse: AtomicBool::new(false),
        });
        let woken = Arc::clone(&waiting);
        builder
            .on_thread_park(move || waiting.waits())
            .on_thread_unpark(move || woken.woke());
    }
    run_with(exit::NEGATIVE, builder, command)
}

struct Slack {
    idle_timers: Arc<IdleTimers>,
    usual: u64,
    coarse: AtomicBool,
}

impl Slack {
    fn waits(&self) {
        if self.idle_timers.is_at(boot_now()) {
            let slack = u64::try_from(SLACK.as_nanos()).unwrap_or(u64::MAX);
            let set = set_slack(slack.max(self.usual));
            self.coarse.store(set, Ordering::Relaxed);
        }
    }

    fn woke(&self) {
        if self.coarse.swap(false, Ordering::Relaxed) {
            set_slack(self.usual);
        }
    }
}

/// Returns false if the kernel refuses the slack. Timers then stay exact and cause more wake-ups.
fn set_slack(nanos: u64) -> bool {
    set_current_timer_slack(NonZeroU64::new(nanos)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an instant at which the election is idle.
    fn settled() -> BootTime {
        boot_now() + SETTLES_IN
    }

    #[test]
    fn an_election_is_at_rest_after_a_quiet_time() {
        let idle_timers = IdleTimers::default();
        assert!(!idle_timers.is_at(settled()), "before it is allowed");
        idle_timers.allow();
        assert!(!idle_timers.is_at(boot_now()), "at the start");
        assert!(idle_timers.is_at(settled()));
        idle_timers.disturbed();
        assert!(!idle_timers.is_at(boot_now()), "after a failure");
    }

    #[test]
    fn a_call_in_flight_needs_exact_timers() {
        let idle_timers = IdleTimers::default();
        idle_timers.allow();
        idle_timers.calls(2);
        assert!(!idle_timers.is_at(settled()));
        idle_timers.calls(0);
        assert!(idle_timers.is_at(settled()));
    }

    #[test]
    fn a_lease_that_cannot_be_followed_needs_exact_timers() {
        let idle_timers = IdleTimers::default();
        idle_timers.allow();
        idle_timers.follows(false);
        assert!(!idle_timers.is_at(settled()));
        idle_timers.follows(true);
        assert!(
            !idle_timers.is_at(boot_now()),
            "immediately after a failure"
        );
        assert!(idle_timers.is_at(settled()));
    }

    #[test]
    fn a_daemon_that_stops_needs_exact_timers() {
        let idle_timers = IdleTimers::default();
        idle_timers.allow();
        idle_timers.forbid();
        assert!(!idle_timers.is_at(settled()));
    }

    #[test]
    fn the_slack_is_set_only_while_the_thread_waits() {
        let now = || current_timer_slack().expect("Linux has timer slack");
        let slack = Slack {
            idle_timers: Arc::default(),
            usual: now(),
            coarse: AtomicBool::new(false),
        };
        slack.waits();
        assert_eq!(now(), slack.usual, "not idle");
        slack.woke();
        slack.idle_timers.allow();
        slack.idle_timers.settled_at.store(0, Ordering::Relaxed);
        slack.waits();
        assert_eq!(u128::from(now()), SLACK.as_nanos());
        slack.woke();
        assert_eq!(now(), slack.usual);
    }
}
