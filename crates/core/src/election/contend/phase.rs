//! The phase of the holder's renewals. A follower without a timely change stream reads just after
//! each expected renewal. A wrong estimate only delays a takeover, because the wait for expiry
//! starts with the reply that first showed a revision.

use std::time::Duration;

use crate::election::tenure::SLOT_STEP_PARTS;
use crate::election::{BootTime, Claim, Holder, Lease, Revision, Timings};

/// Minimum interval between the reads of a window.
const NARROW: Duration = Duration::from_millis(30);
/// Maximum number of reads in a window.
const SECTIONS: u32 = 8;
/// Assumed drift, as a divisor of the interval. Covers clocks, timers, and a holder that renews
/// early (`SLOT_STEP_PARTS`).
const DRIFT_PARTS: u32 = 512;
const _: () = assert!(SLOT_STEP_PARTS >= 2 * DRIFT_PARTS);
/// After this many consecutive early renewals, windows begin earlier.
const EARLY_MAX: u32 = 4;
/// Maximum number of doublings of the drift. Further doublings would exceed any interval.
const DOUBLINGS_MAX: u32 = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct RenewalPhase {
    seen: Option<LastRenewal>,
    asked: BootTime,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct LastRenewal {
    revision: Revision,
    claim: Claim,
    /// The revision was stored between these two instants.
    stored: (BootTime, BootTime),
    /// Send time of the last read that showed this revision.
    unchanged: BootTime,
    /// Number of consecutive renewals that were stored before the first read of their window.
    early: u32,
}

impl RenewalPhase {
    pub(super) fn asks(&mut self, now: BootTime) {
        self.asked = now;
    }

    pub(super) fn shows(&mut self, lease: Option<&Lease>, interval: Duration, now: BootTime) {
        let held = lease.and_then(|lease| Some((lease.revision, lease.claim()?)));
        let Some((revision, claim)) = held else {
            self.seen = None;
            return;
        };
        let asked = self.asked;
        if let Some(seen) = &mut self.seen
            && seen.revision == revision
        {
            seen.unchanged = seen.unchanged.max(asked);
            return;
        }
        let renewed = self.seen.filter(|seen| seen.claim == claim);
        // A holder that renews has stored a revision within the last interval.
        let mut after = now - interval;
        let mut early = 0;
        if let Some(seen) = self.seen {
            after = after.max(seen.unchanged);
        }
        if let Some(seen) = renewed {
            let (begin, _) = seen.window(interval);
            if seen.unchanged <= begin {
                early = seen.early.saturating_add(1);
            }
            if begin < now {
                after = after.max(begin);
            }
        }
        self.seen = Some(LastRenewal {
            revision,
            claim,
            stored: (after, now),
            unchanged: asked,
            early,
        });
    }

    /// Returns the next time to read; `None` if the lease has no holder. If a renewal is overdue,
    /// reads are at most `retry` apart.
    pub(super) fn next_read(&self, interval: Duration, retry: Duration) -> Option<BootTime> {
        let seen = self.seen?;
        let (begin, end) = seen.window(interval);
        let narrow = NARROW.min(interval / SECTIONS);
        let from = begin.max(seen.unchanged);
        if from >= end {
            return Some(from + from.since(end).clamp(narrow, retry.max(narrow)));
        }
        let due = from + (end.since(begin) / SECTIONS).max(narrow);
        Some(if due + narrow / 2 >= end { end } else { due })
    }
}

pub(super) fn renewal_interval(lease: Option<&Lease>, own: &Timings) -> Duration {
    let holder = lease.and_then(|lease| lease.holder.as_ref());
    let declared = holder.and_then(Holder::renewals_every);
    declared.unwrap_or(own.renew_interval())
}

impl LastRenewal {
    fn window(&self, interval: Duration) -> (BootTime, BootTime) {
        let (after, by) = self.stored;
        let doublings = self.early.saturating_sub(EARLY_MAX).min(DOUBLINGS_MAX);
        let drift = (interval / DRIFT_PARTS).saturating_mul(1 << doublings);
        let begin = after + interval - drift.min(interval);
        (begin.min(by + interval), by + interval)
    }
}
