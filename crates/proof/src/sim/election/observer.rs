//! The observer's records about each process, with true time. They contain the inputs, the calls,
//! and the status that the process publishes. The status names the claim that the process is giving
//! up, and the reason. The other records show whether the reason is justified.

use std::collections::VecDeque;
use std::time::Duration;

use super::files::RecoveredState;
use crate::election::{
    BootTime, CallId, Claim, Found, HEAD_START, Input, Lease, Operation, Outcome, Reason, Released,
    Reservation, Revision, Timings, Token, Tunables, Watch,
};

const SIGHTS_MAX: usize = 12;

/// A claim that a process made, with its writes, its authority, and the violations that the checks
/// tolerate.
#[derive(Debug, Clone)]
pub(super) struct ClaimFacts {
    pub(super) claim: Claim,
    pub(super) token: Token,
    pub(super) timings: Timings,
    /// The writes that grant authority once they are acknowledged, each with the time when it was
    /// sent.
    pub(super) sent: Vec<(CallId, Revision, BootTime)>,
    pub(super) made_at: BootTime,
    /// The time when authority ends according to the writes that were acknowledged in time.
    pub(super) until: Option<BootTime>,
    pub(super) until_at: BootTime,
    pub(super) ended: bool,
    pub(super) led: bool,
    /// Until this true time, the claim may lead concurrently with another claim.
    pub(super) tolerated_until: u64,
    pub(super) renewal_sent: BootTime,
    /// True if the process could know, before the claim led, that the store was rolled back after
    /// the acquisition was sent.
    pub(super) warned: bool,
    pub(super) cancelled: bool,
    pub(super) released: bool,
    /// The highest token that the process had seen when it made the claim.
    pub(super) known: Token,
    pub(super) knowledge: Knowledge,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Knowledge {
    /// The highest token whose lease duration the process has seen or has read from its status
    /// directory.
    pub(super) informed: Token,
    /// The newest committed state that the process has seen since its start, by its position in
    /// the order of commits.
    pub(super) newest: u64,
}

/// The time when the process first saw a revision, and the last document with this revision.
#[derive(Debug, Clone)]
pub(super) struct Sight {
    pub(super) first: BootTime,
    pub(super) lease: Lease,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Drain {
    pub(super) token: Token,
    pub(super) since: BootTime,
    pub(super) until: BootTime,
    pub(super) confirmed: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Facts {
    pub(super) claims: Vec<ClaimFacts>,
    pub(super) sights: VecDeque<Sight>,
    /// The newest hint of a release, and when it arrived.
    announced: Option<(BootTime, Released)>,
    pub(super) foreign: bool,
    pub(super) known: Token,
    pub(super) knowledge: Knowledge,
    pub(super) knowledge_at_create: Knowledge,
    /// The claim of the exited process that used the status directory before this process.
    pub(super) dead: Option<Claim>,
    pub(super) begun: BootTime,
    pub(super) drain: Option<Drain>,
    pub(super) confirmed: Option<Token>,
    pub(super) shutdown: bool,
    pub(super) unhealthy: bool,
    /// The time at which the process noticed that no guard in another container is connected.
    pub(super) alone_since: Option<BootTime>,
    /// The cooldown after a step-down request lasts until this instant, or until another claim has
    /// led with a higher token.
    pub(super) stay_out: Option<(BootTime, Token)>,
    /// The end of the cooldown after the workload exited by itself. The cooldown continues even if
    /// another claim leads.
    pub(super) exit_until: Option<BootTime>,
    /// The length of the cooldown after the workload exited, and the time when the process last
    /// began to lead.
    pub(super) back_off: Duration,
    pub(super) leads_since: BootTime,
    pub(super) last_read: Option<CallId>,
    pub(super) last_read_at: u64,
    pub(super) last_write_at: u64,
    pub(super) holds: bool,
    pub(super) decided: BootTime,
}

impl Facts {
    pub(super) fn new(memory: RecoveredState, begun: BootTime) -> Self {
        Self {
            begun,
            known: memory.token,
            knowledge: Knowledge {
                informed: memory.informed,
                newest: 0,
            },
            dead: memory.claim,
            ..Self::default()
        }
    }

    pub(super) fn claim(&self, claim: Claim) -> Option<&ClaimFacts> {
        self.claims.iter().rev().find(|c| c.claim == claim)
    }

    pub(super) fn claim_mut(&mut self, claim: Claim) -> Option<&mut ClaimFacts> {
        self.claims.iter_mut().rev().find(|c| c.claim == claim)
    }

    /// Returns the acknowledged claim of this token. Attempts without an acknowledgement can have
    /// equal tokens.
    pub(super) fn of_token(&self, token: Token) -> Option<&ClaimFacts> {
        let acknowledged = |c: &&ClaimFacts| c.token == token && c.until.is_some();
        self.claims.iter().rev().find(acknowledged)
    }

    pub(super) fn of_token_mut(&mut self, token: Token) -> Option<&mut ClaimFacts> {
        let acknowledged = |c: &&mut ClaimFacts| c.token == token && c.until.is_some();
        self.claims.iter_mut().rev().find(acknowledged)
    }

    pub(super) fn sight(&self, revision: Revision) -> Option<&Sight> {
        let mut newest_first = self.sights.iter().rev();
        newest_first.find(|s| s.lease.revision == revision)
    }

    /// Records an input before the process acts on it. If the input acknowledges a write, returns
    /// the write's claim and revision.
    pub(super) fn received(
        &mut self,
        now: BootTime,
        input: &Input,
        tunables: &Tunables,
    ) -> Option<(Claim, Revision)> {
        match input {
            Input::Reply { call, outcome } => {
                let Outcome::Applied(found) = outcome else {
                    return None;
                };
                let Found::Lease(lease) = found else {
                    // The process may already have stopped waiting for the reply to an older read.
                    if self.last_read == Some(*call) {
                        self.shown(now, found);
                    }
                    return None;
                };
                let paused = self.sight(lease.revision).map(|s| s.lease.paused);
                self.shown(now, found);
                // The process may have ignored this reply, and then does not know of a pause that
                // the reply shows. It ignores the replies to earlier reads.
                let earlier = self.last_read != Some(*call);
                let maybe_ignored = paused.map_or(earlier, |paused| !paused);
                if let (true, Some(sight)) = (maybe_ignored, self.sights.back_mut()) {
                    sight.lease.paused = false;
                }
                return self.acknowledged(now, *call, found);
            }
            Input::Watch(Watch::Changed(lease)) => {
                let paused = self.sight(lease.revision).map(|s| s.lease.paused);
                self.saw(now, lease);
                // After an event, a holder only reads, and does not apply the event.
                if let (true, Some(false), Some(sight)) =
                    (self.holds, paused, self.sights.back_mut())
                {
                    sight.lease.paused = false;
                }
            }
            Input::Watch(Watch::Released(released)) => {
                self.announced = Some((now, released.clone()));
            }
            Input::WorkloadDone { token } => {
                self.confirmed = Some(*token);
                if let Some(drain) = self.drain.as_mut().filter(|d| d.token == *token) {
                    drain.confirmed = true;
                }
            }
            Input::Shutdown => {
                self.shutdown = true;
                let until = now + self.notice_delay(tunables);
                if let Some(drain) = &mut self.drain {
                    drain.until = drain.until.min(until);
                }
            }
            Input::StepDown => {
                for claim in self.claims.iter_mut().filter(|claim| !claim.led) {
                    claim.cancelled = true;
                }
            }
            Input::Health { healthy } => self.unhealthy = !healthy,
            // The new settings may permit a shorter cooldown.
            Input::Reconfigure(_) => self.stay_out = None,
            _ => {}
        }
        None
    }

    /// Records an event of a late stream. The process does not apply the event.
    pub(super) fn noted(&mut self, lease: &Lease) {
        self.known = self.known.max(lease.token);
    }

    fn shown(&mut self, now: BootTime, found: &Found) {
        self.foreign = matches!(found, Found::Foreign(_));
        if let Found::Lease(lease) = found {
            self.saw(now, lease);
        }
    }

    fn saw(&mut self, now: BootTime, lease: &Lease) {
        self.known = self.known.max(lease.token);
        self.foreign = false;
        let own = |claim| self.claim(claim).is_some_and(|c| c.led);
        let mine = lease.holder.as_ref().is_none_or(|h| own(h.claim));
        let stay_out = self.stay_out;
        self.stay_out = stay_out.filter(|(_, token)| mine || lease.token <= *token);
        let mut sights = self.sights.iter();
        let index = sights.position(|s| s.lease.revision == lease.revision);
        // Usually the newest state is the last in the queue.
        let before = match index {
            Some(index) if index + 1 == self.sights.len() => self.sights.pop_back(),
            Some(index) => self.sights.remove(index),
            None => None,
        };
        let first = before.as_ref().map_or(now, |sight| sight.first);
        if self.sights.len() == SIGHTS_MAX {
            self.sights.pop_front();
        }
        let mut lease = lease.clone();
        // If an operator edited the declared duration, the process may use the old or the new
        // value.
        if let (Some(holder), Some(old)) = (&mut lease.holder, before.and_then(|s| s.lease.holder))
        {
            let (new, old) = (holder.lease_duration, old.lease_duration);
            holder.lease_duration = std::cmp::min_by_key(new, old, |it| it.duration());
        }
        self.sights.push_back(Sight { first, lease });
    }

    /// Returns the state that the newest hint of a release announces, if the process has seen the
    /// ended claim. Only an acquisition of a free lease may rely on this state.
    pub(super) fn announced(&self) -> Option<Sight> {
        let (first, released) = self.announced.as_ref()?;
        let held = |lease: &&Lease| {
            lease.holder.as_ref().map(|holder| holder.claim) == Some(released.claim)
        };
        let mut newest_first = self.sights.iter().rev().map(|sight| &sight.lease);
        let ended = newest_first.find(held)?;
        let lease = Lease {
            holder: None,
            revision: released.revision,
            // The process may have ignored a reply that showed a pause.
            paused: false,
            reserved_for: Some(Reservation {
                identity: released.reserved_for.clone(),
                duration: HEAD_START,
            }),
            ..ended.clone()
        };
        Some(Sight {
            first: *first,
            lease,
        })
    }

    pub(super) fn learned(&mut self, lease: &Lease, order: u64) {
        let Knowledge { informed, newest } = &mut self.knowledge;
        *newest = (*newest).max(order);
        let holder = lease.holder.as_ref().map(|h| h.claim);
        for claim in self.claims.iter_mut().filter(|claim| !claim.led) {
            claim.warned |= lease.token >= claim.token && holder != Some(claim.claim);
        }
        let declared = lease.holder.as_ref().map(|h| h.lease_duration);
        if declared.is_some_and(|declared| declared.valid().is_some()) {
            *informed = (*informed).max(lease.token);
        }
    }

    fn acknowledged(
        &mut self,
        now: BootTime,
        call: CallId,
        found: &Found,
    ) -> Option<(Claim, Revision)> {
        let Found::Lease(lease) = found else {
            return None;
        };
        let holder = lease.holder.as_ref()?.claim;
        let facts = self.claim_mut(holder)?;
        let (_, revision, sent) = *facts.sent.iter().find(|(id, _, _)| *id == call)?;
        let until = sent + facts.timings.renew_deadline();
        // The claim led and its deadline has passed, so the acknowledgement is late and extends
        // nothing.
        if facts.led && facts.until.is_some_and(|before| before <= now) {
            return Some((holder, revision));
        }
        if facts.until.is_none_or(|before| before < until) {
            facts.until_at = now;
        }
        facts.until = Some(facts.until.map_or(until, |before| before.max(until)));
        Some((holder, revision))
    }

    pub(super) fn calls(
        &mut self,
        decided: BootTime,
        call: CallId,
        operation: &Operation,
        timings: Timings,
    ) {
        let mut knowledge = self.knowledge;
        if let Operation::TakeOver { acquisition, .. } = operation
            && let Some(sight) = self.sight(acquisition.expected)
            && let Some(holder) = &sight.lease.holder
            && self.dead == Some(holder.claim)
        {
            // A proof that a process exited is only as recent as the claim record.
            knowledge.newest = knowledge.newest.min(1);
        }
        match operation {
            Operation::Acquire(new)
            | Operation::TakeOver {
                acquisition: new, ..
            } => {
                if self.claims.len() == 64 {
                    self.claims.remove(0);
                }
                self.claims.push(ClaimFacts {
                    claim: new.claim,
                    token: new.token,
                    timings,
                    sent: vec![(call, new.revision, decided)],
                    made_at: decided,
                    until: None,
                    until_at: decided,
                    ended: false,
                    led: false,
                    tolerated_until: 0,
                    renewal_sent: decided,
                    warned: false,
                    cancelled: false,
                    released: false,
                    known: self.known,
                    knowledge,
                });
            }
            Operation::Renew {
                claim, revision, ..
            } => {
                if let Some(facts) = self.claim_mut(*claim) {
                    if facts.sent.len() > 64 {
                        facts.sent.remove(0);
                    }
                    facts.sent.push((call, *revision, decided));
                    facts.renewal_sent = decided;
                }
            }
            Operation::Read { .. } => self.last_read = Some(call),
            Operation::Create { .. } => self.knowledge_at_create = self.knowledge,
            Operation::Release { .. } | Operation::Register { .. } | Operation::Withdraw { .. } => {
            }
        }
    }

    /// Returns how long the workload may take to notice the loss. At a shutdown, this is at most a
    /// second if the workload is configured to end before its candidate.
    pub(super) fn notice_delay(&self, tunables: &Tunables) -> Duration {
        let delay = tunables.handoff_delay;
        match self.shutdown && tunables.workload_ends_first {
            true => delay.min(Duration::from_secs(1)),
            false => delay,
        }
    }

    /// Records the status after a turn. `requested` is true if the turn's input showed a request
    /// in the document.
    pub(super) fn says(
        &mut self,
        now: BootTime,
        stopping: Option<Token>,
        reason: Option<Reason>,
        requested: bool,
        tunables: &Tunables,
    ) {
        let known = self.drain.map(|drain| drain.token);
        let Some(token) = stopping.filter(|token| known != Some(*token)) else {
            return;
        };
        self.drain = Some(Drain {
            token,
            since: now,
            until: now + self.notice_delay(tunables),
            confirmed: false,
        });
        if reason == Some(Reason::WorkloadExit) {
            self.backs_off(now, tunables);
        }
        let transferred = reason == Some(Reason::Transferred) && requested;
        if transferred || reason == Some(Reason::Requested) {
            self.stay_out = Some((now + tunables.timings.lease_duration(), token));
        }
    }

    /// Records that the workload exited by itself. The cooldown grows if the workload repeatedly
    /// exits soon after its start.
    fn backs_off(&mut self, now: BootTime, tunables: &Tunables) {
        let timings = tunables.timings;
        let (least, most) = (timings.retry_interval(), timings.lease_duration());
        let quick = now.since(self.leads_since) < most;
        let before = if quick { self.back_off } else { Duration::ZERO };
        self.back_off = (before * 2).clamp(least, most);
        self.exit_until = Some(now + self.back_off);
    }
}
