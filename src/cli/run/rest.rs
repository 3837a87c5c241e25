//! Coarse timers while the election is at rest.
//!
//! Two thirds of a resting daemon's wake-ups are timers of the driver's connection pools, which look
//! twice a second whether anything is due, and turns of tokio's timer wheel before each. No option
//! of the driver avoids them. But the kernel can be allowed to delay the timers of a thread (timer
//! slack), and then one wake-up serves several. The timers of the election are descriptors on the
//! boot clock, which the kernel never delays.
//!
//! The slack applies only while the thread waits: a new process or thread would inherit it.

use std::future::Future;
use std::io;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::thread::{current_timer_slack, set_current_timer_slack};

use crate::clock::boot_now;
use crate::election::BootTime;

/// By how much a timer may be late while the election is at rest.
const SLACK: Duration = Duration::from_secs(1);

/// Time without a disturbance after which the election is at rest. The driver repeats what has
/// failed twice a second, and has found a new primary by then or is asked for one.
const SETTLES_IN: Duration = Duration::from_secs(10);

/// A timer that fires more often than this has to be exact.
pub(super) const EXACT_BELOW: Duration = Duration::from_secs(5);

/// Knows whether the election is at rest: no store call is in flight, the lease is followed, and
/// nothing has failed or changed for a while.
#[derive(Debug)]
pub(super) struct Rest {
    allowed: AtomicBool,
    calls: AtomicBool,
    blind: AtomicBool,
    /// Nanoseconds since boot.
    settled_at: AtomicU64,
}

impl Default for Rest {
    /// Never at rest before [`Rest::allow`].
    fn default() -> Self {
        Self {
            allowed: AtomicBool::new(false),
            calls: AtomicBool::new(false),
            blind: AtomicBool::new(false),
            settled_at: AtomicU64::new(u64::MAX),
        }
    }
}

impl Rest {
    /// Allows coarse timers once the election has settled.
    pub(super) fn allow(&self) {
        self.disturbed();
        self.allowed.store(true, Ordering::Relaxed);
    }

    /// Something has failed or changed.
    pub(super) fn disturbed(&self) {
        let settled = boot_now() + SETTLES_IN;
        self.settled_at.store(settled.as_nanos(), Ordering::Relaxed);
    }

    /// This number of store calls is in flight.
    pub(super) fn calls(&self, in_flight: usize) {
        self.calls.store(in_flight > 0, Ordering::Relaxed);
    }

    /// The lease is followed, or cannot be.
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

/// Runs a command on one thread, with coarse timers while the election is at rest.
///
/// # Errors
/// If the event loop cannot be started.
pub(super) fn run_to_end<T>(rest: &Arc<Rest>, command: impl Future<Output = T>) -> io::Result<T> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    // Without the slack that the thread began with, none can be restored.
    if let Ok(usual) = current_timer_slack() {
        let (rest, coarse) = (Arc::clone(rest), Arc::new(AtomicBool::new(false)));
        let set = Arc::clone(&coarse);
        builder
            .on_thread_park(move || {
                if rest.is_at(boot_now()) {
                    set.store(set_slack(nanos(SLACK).max(usual)), Ordering::Relaxed);
                }
            })
            .on_thread_unpark(move || {
                if coarse.swap(false, Ordering::Relaxed) {
                    set_slack(usual);
                }
            });
    }
    super::super::run_with(builder, command)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns true if the kernel permits it. If not, timers stay exact, and only cost more.
fn set_slack(nanos: u64) -> bool {
    set_current_timer_slack(NonZeroU64::new(nanos)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An instant after the election has settled.
    fn settled() -> BootTime {
        boot_now() + SETTLES_IN
    }

    #[test]
    fn an_election_is_at_rest_when_nothing_has_happened_for_a_while() {
        let rest = Rest::default();
        assert!(!rest.is_at(settled()), "before it is allowed");
        rest.allow();
        assert!(!rest.is_at(boot_now()), "at the start");
        assert!(rest.is_at(settled()));
        rest.disturbed();
        assert!(!rest.is_at(boot_now()), "after a failure");
    }

    #[test]
    fn a_call_in_flight_needs_exact_timers() {
        let rest = Rest::default();
        rest.allow();
        rest.calls(2);
        assert!(!rest.is_at(settled()));
        rest.calls(0);
        assert!(rest.is_at(settled()));
    }

    #[test]
    fn a_lease_that_cannot_be_followed_needs_exact_timers() {
        let rest = Rest::default();
        rest.allow();
        rest.follows(false);
        assert!(!rest.is_at(settled()));
        rest.follows(true);
        assert!(!rest.is_at(boot_now()), "it has failed a moment ago");
        assert!(rest.is_at(settled()));
    }

    #[test]
    fn the_slack_is_set_only_while_the_thread_waits() {
        let rest = Arc::new(Rest::default());
        rest.allow();
        rest.settled_at.store(0, Ordering::Relaxed);
        let usual = current_timer_slack().expect("Linux has timer slack");
        let thread = rustix::thread::gettid().as_raw_nonzero();
        let shown = format!("/proc/{thread}/timerslack_ns");
        let during = run_to_end(&rest, async {
            let (asked, asks) = std::sync::mpsc::channel::<()>();
            let (answer, answered) = tokio::sync::oneshot::channel();
            let coarse = nanos(SLACK).to_string();
            // Looks until the thread waits.
            let looker = std::thread::spawn(move || {
                asks.recv().expect("a question");
                while std::fs::read_to_string(&shown).expect("a thread").trim() != coarse {
                    std::thread::yield_now();
                }
                let _ = answer.send(());
            });
            asked.send(()).expect("the looker waits");
            answered.await.expect("an answer");
            looker.join().expect("the looker has ended");
            current_timer_slack().expect("Linux has timer slack")
        });
        assert_eq!(during.expect("an event loop"), usual);
        assert_eq!(current_timer_slack().expect("Linux has it"), usual);
    }
}
