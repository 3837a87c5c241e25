//! Delays before a candidate contends: cooldown, quarantine, jitter, an unhealthy workload.
//!
//! This module does not acquire. The waits for another candidate's claim or reservation are in
//! `decide.rs`.

use std::time::Duration;

use super::lease::{Lease, Session, Token};
use super::time::BootTime;
use crate::claim::Turn;

/// Spread (maximum random delay) after the first lost race, and the largest spread. If one event
/// wakes fifty candidates, one of fifty writes succeeds; the losers spread out at the next release.
pub(super) const SPREAD_MIN: Duration = Duration::from_millis(5);
pub(super) const SPREAD_MAX: Duration = Duration::from_millis(40);

/// Two losses by deadline within this window make a candidate wait.
const LOSSES_WINDOW: Duration = Duration::from_secs(600);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Waits {
    /// True if the workload is unhealthy, so that the lease is left to others indefinitely.
    pub(super) unhealthy: bool,
    /// Ends early when another claim leads.
    cooldown: Option<Cooldown>,
    /// End of the time that this candidate does not contend because the store was rolled back.
    pub(super) quarantine: Option<BootTime>,
    /// Instant at which leadership was last lost by deadline.
    deadline_loss: Option<BootTime>,
    /// Maximum random delay before an acquisition, so that candidates woken together spread out.
    jitter_max: Duration,
    /// Earliest instant to acquire a free lease: a random delay after the last revision was seen.
    pub(super) acquire_not_before: BootTime,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Cooldown {
    until: BootTime,
    /// The cooldown ends early when another process holds the lease with a higher token.
    token: Token,
    /// Session of this process. A late reply or event may show its ended claim with a token that an
    /// operator raised, and this claim must not count as a successor's.
    session: Session,
}

impl Waits {
    pub(super) fn new(now: BootTime) -> Self {
        Self {
            unhealthy: false,
            cooldown: None,
            quarantine: None,
            deadline_loss: None,
            jitter_max: Duration::ZERO,
            acquire_not_before: now,
        }
    }

    /// Returns the instant before which the candidate does not contend, if any.
    pub(super) fn contend_from(&self) -> Option<BootTime> {
        let cooldown = self.cooldown.map(|cooldown| cooldown.until);
        cooldown.max(self.quarantine)
    }

    /// Returns true if this candidate would not lead soon, so that it does not stand by.
    pub(super) fn bar_standby(&self, now: BootTime) -> bool {
        let cools_down = self.cooldown.is_some_and(|cooldown| cooldown.until > now);
        self.unhealthy || self.quarantine.is_some() || cools_down
    }

    /// Starts a cooldown, which ends early when another process holds the lease with a higher token
    /// than `token`.
    pub(super) fn cool_down(&mut self, until: BootTime, token: Token, session: Session) {
        self.cooldown = Some(Cooldown {
            until,
            token,
            session,
        });
    }

    /// Ends the waits that are over.
    pub(super) fn expire(&mut self, now: BootTime) {
        self.cooldown = self.cooldown.filter(|cooldown| cooldown.until > now);
        self.quarantine = self.quarantine.filter(|until| *until > now);
    }

    /// Ends the cooldown if another process has acquired the lease since.
    pub(super) fn observe(&mut self, lease: &Lease) {
        self.cooldown = self.cooldown.filter(|cooldown| {
            let holder = lease.holder.as_ref();
            let another = holder.is_some_and(|holder| holder.session != cooldown.session);
            !another || lease.token <= cooldown.token
        });
    }

    /// Draws a random delay for a new revision, so that candidates do not act simultaneously.
    pub(super) fn draw(&mut self, turn: &mut Turn<'_>) {
        self.acquire_not_before = turn.now + turn.up_to(self.jitter_max);
    }

    /// Lets this candidate wait longer after a lost race for a free lease.
    pub(super) fn race_lost(&mut self) {
        self.jitter_max = (self.jitter_max * 2).clamp(SPREAD_MIN, SPREAD_MAX);
    }

    /// Ends all waits, because a claim leads.
    pub(super) fn begin_to_lead(&mut self) {
        self.jitter_max = if self.jitter_max > SPREAD_MIN {
            self.jitter_max / 2
        } else {
            Duration::ZERO
        };
        self.cooldown = None;
        self.quarantine = None;
    }

    /// Records a loss by deadline; returns true if it is the second within the window.
    pub(super) fn lost_by_deadline(&mut self, now: BootTime) -> bool {
        let before = self.deadline_loss.replace(now);
        before.is_some_and(|at| now.since(at) < LOSSES_WINDOW)
    }
}

#[cfg(all(test, not(proof)))]
impl Waits {
    pub(super) fn jitter_max(&mut self) -> &mut Duration {
        &mut self.jitter_max
    }
}
