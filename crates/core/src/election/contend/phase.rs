//! The phase of the holder's renewals. A follower without a timely change stream reads just after
//! each expected renewal. A wrong estimate only delays a takeover, because the wait for expiry
//! starts with the reply that first showed a revision.
//!
//! A reply shows that a renewal was stored before the read, but not when. So each read that finds a
//! renewal makes the next one a little earlier, until a read comes too early. This read is soon
//! repeated, and the next one is later again. About one renewal in five needs two reads.

use std::time::Duration;

use crate::election::{BootTime, Claim, Holder, Lease, Revision, Timings};

/// Minimum interval between reads. After a read that came too early, the next one is later by at
/// most this duration, so that a single slow write hardly changes the estimate.
const NARROW: Duration = Duration::from_millis(4);
/// If a renewal comes later than expected by more than this duration, the estimate is wrong.
const WRONG: Duration = Duration::from_millis(32);
/// Number of reads in the time in which the renewal is expected.
const SECTIONS: u32 = 16;
/// While reads find renewals, each one is earlier by this part of the interval.
const STEP_PARTS: u32 = 4096;
/// After this many consecutive renewals that the first read found, the steps grow, because the
/// renewals are earlier than expected. A leader moves them, too (`SLOT_STEP_PARTS`).
const FOUND_MAX: u32 = 8;
const GROWTH: u32 = 4;
/// Maximum number of doublings of `NARROW`. Further doublings would exceed `WRONG`.
const DOUBLINGS_MAX: u32 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct RenewalPhase {
    estimate: Option<Estimate>,
    asked: BootTime,
    /// True if a hint was received after the last reply.
    hinted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Estimate {
    revision: Revision,
    claim: Claim,
    /// Time of the first read for the next renewal.
    expected: BootTime,
    /// The renewal is expected within this duration after `expected`.
    step: Duration,
    /// Send time of the last read that showed this revision.
    unchanged: BootTime,
    /// Number of consecutive renewals that the first read found.
    found: u32,
    /// Number of consecutive renewals that the first read was too early for.
    missed: u32,
}

impl RenewalPhase {
    pub(super) fn asks(&mut self, now: BootTime) {
        self.asked = now;
    }

    pub(super) fn hinted(&mut self) {
        self.hinted = true;
    }

    pub(super) fn shows(&mut self, lease: Option<&Lease>, interval: Duration) {
        let asked = self.asked;
        let hinted = std::mem::take(&mut self.hinted);
        let held = lease.and_then(|lease| Some((lease.revision, lease.claim()?)));
        self.estimate = held.map(|(revision, claim)| match self.estimate {
            Some(known) if known.revision == revision => Estimate {
                unchanged: known.unchanged.max(asked),
                ..known
            },
            Some(known) if known.claim == claim => known.renewed(revision, asked, interval),
            known => {
                // A hint follows an acquisition at once.
                let uncertain = match known {
                    Some(_) if hinted => WRONG,
                    Some(known) => asked.since(known.unchanged),
                    None => interval,
                };
                Estimate::new((revision, claim), asked, uncertain, interval)
            }
        });
    }

    /// Returns the next time to read; `None` if the lease has no holder. If a renewal is overdue,
    /// reads are at most `retry` apart.
    pub(super) fn next_read(&self, retry: Duration) -> Option<BootTime> {
        let seen = self.estimate?;
        if seen.unchanged < seen.expected {
            return Some(seen.expected);
        }
        let overdue = seen.unchanged.since(seen.expected);
        let pause = match overdue < 2 * seen.step {
            true => seen.step / SECTIONS,
            false => overdue,
        };
        Some(seen.unchanged + pause.clamp(NARROW, retry.max(NARROW)))
    }
}

impl Estimate {
    /// Begins with a revision that was stored at most `uncertain` before a read sent at `asked`. A
    /// holder that renews has stored a revision within the last interval.
    fn new(
        (revision, claim): (Revision, Claim),
        asked: BootTime,
        uncertain: Duration,
        interval: Duration,
    ) -> Self {
        let step = uncertain.min(interval).max(interval / STEP_PARTS);
        Self {
            revision,
            claim,
            expected: asked + (interval - step),
            step,
            unchanged: asked,
            found: 0,
            missed: 0,
        }
    }

    /// Returns the estimate after a read, sent at `asked`, has shown the next revision.
    fn renewed(self, revision: Revision, asked: BootTime, interval: Duration) -> Self {
        let late = asked.since(self.expected);
        let was_early = self.unchanged >= self.expected;
        // A first read that is late by an interval, for example after a freeze, shows no phase.
        let late_max = if was_early { WRONG } else { interval };
        if late > late_max {
            let uncertain = asked.since(self.unchanged);
            return Self::new((revision, self.claim), asked, uncertain, interval);
        }
        let mut next = Self {
            revision,
            unchanged: asked,
            ..self
        };
        if was_early {
            let later = NARROW * (1 << self.missed.min(DOUBLINGS_MAX));
            (next.missed, next.found) = (self.missed.saturating_add(1), 0);
            next.step = interval / STEP_PARTS;
            next.expected = self.expected + late.min(later) + interval;
        } else {
            (next.missed, next.found) = (0, self.found.saturating_add(1));
            if next.found > FOUND_MAX {
                next.step = self.step.saturating_mul(GROWTH).min(interval);
            }
            next.expected = self.expected.min(asked) + interval.saturating_sub(next.step);
        }
        next
    }
}

pub(super) fn renewal_interval(lease: Option<&Lease>, own: &Timings) -> Duration {
    let holder = lease.and_then(|lease| lease.holder.as_ref());
    let declared = holder.and_then(Holder::renewals_every);
    declared.unwrap_or(own.renew_interval())
}
