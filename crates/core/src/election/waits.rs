//! Delays before a candidate contends. The waits for other candidates are in `contend/decide.rs`.

use std::time::Duration;

use super::{BootTime, Lease, Session, Token};
use crate::claim::Turn;

/// Maximum random delay after the first lost race. Each further loss raises it, up to `SPREAD_MAX`.
pub(super) const SPREAD_MIN: Duration = Duration::from_millis(5);
pub(super) const SPREAD_MAX: Duration = Duration::from_millis(40);

/// A candidate that loses leadership at its deadline twice within this window must wait.
const LOSSES_WINDOW: Duration = Duration::from_secs(600);

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Waits {
    pub(super) unhealthy: bool,
    cooldown: Option<Cooldown>,
    /// End of the wait after the workload ended on its own. It continues even while another
    /// candidate leads, because a change of leader does not repair this candidate's workload.
    back_off: Option<BootTime>,
    pub(super) quarantine: Option<BootTime>,
    deadline_loss: Option<BootTime>,
    /// Maximum random delay before an acquisition, to spread candidates that wake together.
    pub(super) jitter_max: Duration,
    /// Earliest instant to acquire a free lease, chosen at random when the revision was first seen.
    pub(super) acquire_not_before: BootTime,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Cooldown {
    until: BootTime,
    /// The cooldown ends early when another process holds the lease with a token above this token.
    token: Token,
    /// Session of this process. Its own ended claims do not count as successors, even if they are
    /// seen late.
    session: Session,
}

impl Waits {
    pub(super) fn new(now: BootTime) -> Self {
        Self {
            acquire_not_before: now,
            ..Self::default()
        }
    }

    pub(super) fn contend_from(&self) -> Option<BootTime> {
        let cooldown = self.cooldown.map(|cooldown| cooldown.until);
        cooldown.max(self.back_off).max(self.quarantine)
    }

    /// Returns true if this candidate must not become the standby, because it will not be able to
    /// lead soon.
    pub(super) fn bar_standby(&self, now: BootTime) -> bool {
        let cooldown = self.cooldown.map(|cooldown| cooldown.until);
        let waits = cooldown.max(self.back_off) > Some(now);
        self.unhealthy || self.quarantine.is_some() || waits
    }

    pub(super) fn cool_down(&mut self, until: BootTime, token: Token, session: Session) {
        self.cooldown = Some(Cooldown {
            until,
            token,
            session,
        });
    }

    pub(super) fn back_off(&mut self, until: BootTime) {
        self.back_off = Some(until);
    }

    pub(super) fn expire(&mut self, now: BootTime) {
        self.back_off = self.back_off.filter(|until| *until > now);
        self.cooldown = self.cooldown.filter(|cooldown| cooldown.until > now);
        self.quarantine = self.quarantine.filter(|until| *until > now);
    }

    pub(super) fn observe(&mut self, lease: &Lease) {
        self.cooldown = self.cooldown.filter(|cooldown| {
            let holder = lease.holder.as_ref();
            let another = holder.is_some_and(|holder| holder.session != cooldown.session);
            !another || lease.token <= cooldown.token
        });
    }

    pub(super) fn draw(&mut self, turn: &mut Turn<'_>) {
        self.acquire_not_before = turn.now + turn.up_to(self.jitter_max);
    }

    pub(super) fn race_lost(&mut self) {
        self.jitter_max = (self.jitter_max * 2).clamp(SPREAD_MIN, SPREAD_MAX);
    }

    pub(super) fn begin_to_lead(&mut self) {
        self.jitter_max = match self.jitter_max > SPREAD_MIN {
            true => self.jitter_max / 2,
            false => Duration::ZERO,
        };
        self.cooldown = None;
        self.back_off = None;
        self.quarantine = None;
    }

    pub(super) fn lost_by_deadline(&mut self, now: BootTime) -> bool {
        let before = self.deadline_loss.replace(now);
        before.is_some_and(|at| now.since(at) < LOSSES_WINDOW)
    }
}
