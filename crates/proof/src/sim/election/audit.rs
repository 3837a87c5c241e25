//! Checks the ledger against the invariants before and after each turn.

use std::time::Duration;

use super::cluster::{GaveWay, World};
use super::invariants::ended_claims_are_freed;
use super::invariants::held_claims_are_renewed::{self, Held};
use super::invariants::leaders_stop_when_they_must::{self, Turn};
use super::invariants::leadership_ends_with_cause::{self, Ending};
use super::invariants::notifications_are_followed_up::{self, Owed};
use super::invariants::preference_is_bounded::{self, Handover};
use super::invariants::stops_are_bounded::{self, Stop};
use crate::election::{BootTime, Claim, Found, Input, Lease, Outcome, Reason, Reservation, Token};

/// A leader that reaches its deadline twice within this time waits before it contends again. Must
/// equal the value in `election/waits.rs`.
const LOSSES_WINDOW: Duration = Duration::from_secs(600);

impl World {
    /// Checks that the process made every call that its last turn required, and records this
    /// input.
    pub(super) fn audit_before(&mut self, process: usize, now: BootTime, input: &Input) {
        let p = &self.processes[process];
        let status = p.election.status();
        let led = status.authority.map(|a| a.token);
        let stopping = status.stepping_down;
        let facts = led.or(stopping).and_then(|token| p.facts.of_token(token));
        let held = facts.map(|c| (c.claim, c.token));
        let until = facts.and_then(|c| c.until);
        let owed = Owed {
            read: p.ledger.read_owed && !p.facts.shutdown,
            renewal: held.is_some_and(|(_, token)| p.ledger.renewal_owed == Some(token)),
        };
        let renewed = facts.map(|claim| {
            let awake = Duration::from_nanos(self.now.saturating_sub(self.thaws_at(process)));
            Held {
                idle: now.since(claim.renewal_sent).min(awake),
                idle_max: claim.timings.renew_interval()
                    + p.operation_timeout * 2
                    + p.tunables.timings.retry_interval() * 3
                    + Duration::from_secs(1),
            }
        });
        let drain = p.facts.drain.filter(|drain| stopping == Some(drain.token));
        let stopped = facts.zip(drain).map(|(claim, drain)| {
            let awake = Duration::from_nanos(self.now.saturating_sub(self.thaws_at(process)));
            Stop {
                lasts: now.since(drain.since).min(awake),
                grace: self.machines[p.machine].stop_grace,
                loss_grace: claim.timings.loss_grace(),
                // The handoff delay counts twice, because the delay begins again if a status file
                // is replaced as late as the deadline in that file.
                notice: claim.timings.renew_deadline() + p.tunables.handoff_delay * 2,
            }
        });
        let read = match input {
            Input::Reply {
                call,
                outcome: Outcome::Applied(Found::Lease(lease)),
            } if p.facts.last_read == Some(*call) => Some(self.left_in_the_store(process, lease)),
            _ => None,
        };
        let ledger = &mut self.processes[process].ledger;
        (ledger.led, ledger.stopping, ledger.until) = (led, stopping, until);
        ledger.received(input, held);
        if let Some(ended) = read {
            ledger.reads(ended);
        }
        let idle_reads = ledger.idle_reads;
        self.found(notifications_are_followed_up::check(owed));
        self.found(renewed.and_then(held_claims_are_renewed::check));
        self.found(stopped.and_then(stops_are_bounded::check));
        self.found(ended_claims_are_freed::check(idle_reads));
    }

    /// Returns the claim of the process's last leadership, if the claim is stored and the process
    /// can still release it.
    fn left_in_the_store(&self, process: usize, lease: &Lease) -> Option<Claim> {
        let facts = &self.processes[process].facts;
        // After damage to the document, a fork or a shutdown, a process may let the claim expire.
        let damaged = self.own.damages.iter().any(|d| d.until > self.now);
        let troubled = self.own.edited || damaged || !self.own.forks.is_empty();
        // A process does not release the claim while a child runs, or while a workload might not
        // have noticed the loss.
        let unnoticed = self.processes[process].election.status().unnoticed;
        let awaits = self.awaits_child(process) || unnoticed.is_some();
        if troubled || awaits || facts.holds || facts.shutdown || lease.token < facts.known {
            return None;
        }
        let holder = lease.holder.as_ref()?;
        let last = facts.claims.iter().rev().find(|c| c.led)?;
        let deadline = last.timings.renew_deadline();
        let open = |sent: BootTime| last.until.is_some_and(|until| sent + deadline >= until);
        let mine =
            |(_, revision, sent): &(_, _, BootTime)| *revision == lease.revision && open(*sent);
        // If an operator raised the token, events may have shown the raised token together with
        // another holder. The process then treats the claim as superseded, and waits until the
        // claim has expired.
        let raised = lease.token != last.token;
        (holder.claim == last.claim && !raised && last.sent.iter().any(mine)).then_some(last.claim)
    }

    /// Checks that leadership ended if and only if it had a valid cause to end.
    pub(super) fn audit_after(&mut self, process: usize, now: BootTime) {
        let p = &self.processes[process];
        let me = &self.machines[p.machine].identity;
        let status = p.election.status();
        let led = status.authority.map(|a| a.token);
        let stopping = status.stepping_down;
        let (ledger, heard) = (&p.ledger, &p.ledger.heard);
        let of = |token: Token| p.facts.of_token(token).map(|c| c.claim);
        let asks = heard.asks.as_ref();
        let request = asks.and_then(|asks| asks.request.as_ref());
        let obeyed = ledger.led.and_then(|token| {
            let claim = of(token)?;
            let renewed = heard.renewed == Some(claim);
            let to_another = |to: Option<&Reservation>| to.map(|r| &r.identity) != Some(me);
            leaders_stop_when_they_must::check(Turn {
                rejected: heard.rejected == Some(claim),
                paused: renewed && asks.is_some_and(|asks| asks.paused),
                requested: renewed
                    && request.is_some_and(|(t, to)| *t == token && to_another(to.as_ref())),
                ..Turn::quiet(led == Some(token))
            })
        });
        let cancelled = led.and_then(|token| p.facts.of_token(token));
        let able = leaders_stop_when_they_must::check(Turn {
            unhealthy: p.facts.unhealthy,
            cancelled: cancelled.is_some_and(|claim| claim.cancelled),
            ..Turn::quiet(led.is_some())
        });
        let begins = stopping.filter(|token| ledger.stopping != Some(*token));
        let lost = ledger.led.or(ledger.stopping).filter(|_| {
            let by_loss = matches!(
                status.reason,
                Some(
                    Reason::Deadline
                        | Reason::Rejected
                        | Reason::WorkloadStuck
                        | Reason::StoreRolledBack
                )
            );
            led.is_none() && stopping.is_none() && by_loss
        });
        let unasked = |token: &Token| request.map(|(named, _)| named) != Some(token);
        let gave_way = begins
            .filter(|_| status.reason == Some(Reason::Transferred))
            .filter(unasked);
        let handover = gave_way.map(|token| {
            let made_at = p.facts.of_token(token).map(|claim| claim.made_at);
            // After an edit, damage or a fork, two candidates may lead at the same time.
            let troubled = self.own.edited || !self.own.damages.is_empty();
            let last = self
                .own
                .gave_way
                .filter(|_| !troubled && self.own.forks.is_empty());
            Handover {
                interval: p.tunables.prefer_interval,
                led: made_at.map_or(Duration::ZERO, |at| now.since(at)),
                since_last: last.map(|last| Duration::from_nanos(self.now - last.at)),
            }
        });
        let caused = begins.or(lost).and_then(|token| {
            leadership_ends_with_cause::check(Ending {
                token,
                reason: status.reason,
                signalled: heard.signalled,
                shut_down: heard.shut_down,
                unhealthy: heard.unhealthy,
                exited: heard.exited,
                stuck: heard.stuck,
                paused: asks.is_some_and(|asks| asks.paused),
                prefers: gave_way.is_some(),
                requested: request.map(|(token, _)| *token),
                confirmed: p.confirmed,
                rejected: heard.rejected.is_some() && heard.rejected == of(token),
                expired: ledger.until.is_some_and(|until| until <= now),
            })
        });
        let by_deadline = lost.filter(|_| status.reason == Some(Reason::Deadline));
        let lease_duration = p.tunables.timings.lease_duration();
        let reconfigured = heard.reconfigured;
        let transferred = begins.filter(|_| status.reason == Some(Reason::Transferred));
        let transferred = transferred.and_then(|token| {
            let (_, to) = request?;
            Some((token, to.clone()?))
        });
        self.found(obeyed);
        self.found(able);
        self.found(caused);
        self.found(handover.and_then(preference_is_bounded::check));
        if let Some(token) = gave_way {
            self.own.gave_way = Some(GaveWay {
                at: self.now,
                token,
            });
        }
        let p = &mut self.processes[process];
        p.ledger.transferred = transferred.or(p.ledger.transferred.take());
        if let Some(token) = by_deadline {
            let before = p.ledger.lost_at.replace(now);
            let again = before.is_some_and(|at| now.since(at) < LOSSES_WINDOW);
            // If the settings changed in this turn, either the old or the new cooldown may apply.
            if again && !reconfigured {
                p.facts.stay_out = Some((now + lease_duration, token));
            }
        }
    }
}
