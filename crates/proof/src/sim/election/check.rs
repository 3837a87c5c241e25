//! Checks the observer's records against the invariants.

use super::cluster::{Was, World};
use super::coverage::{Hit, Path, Said};
use super::document::{Committed, Document, HISTORY_MAX, Writer, claim_of};
use super::invariants::authority_from_acknowledged_writes::{self as earned, Authority};
use super::invariants::followers_write_with_cause as followers;
use super::invariants::leaders_have_guards as guards;
use super::invariants::leaders_stop_when_they_must as must_stop;
use super::invariants::one_leader::{self, Leading};
use super::invariants::preference_is_bounded::{self as preferred, Preferred};
use super::invariants::surfaces_have_deadlines::{self as surfaces, Surface};
use super::invariants::unknown_grants_nothing as unknown;
use super::invariants::{
    Violation, acquisitions_begin_clean, bounds, claims_lead_once, notices_are_true,
    release_after_the_workload as release, tokens_grow, transfers_reserve,
};
use super::observer::Sight;
use super::process::CALLS_MAX;
use crate::election::mutation::planted;
use crate::election::{
    BootTime, CallId, Found, Identity, Input, Notice, Operation, Outcome, RESERVATION_DEFAULT,
    Reason, Reservation, Revision, Token, Watch,
};

/// A filter may list the revisions of one acknowledged renewal and of 256 renewals with an unknown
/// outcome (the limit in `election/tenure.rs`). At most two renewals may be in flight.
const CHAIN_MAX: usize = 257;
const RENEWALS_MAX: usize = 2;

impl World {
    pub(super) fn before_turn(&mut self, process: usize, now: BootTime, input: &Input) {
        self.audit_before(process, now, input);
        self.hear_before(process, now, input);
        if let Input::WorkloadDone { token } = input {
            self.neighbour_confirms(process, *token);
        }
        let p = &mut self.processes[process];
        let mut only_token = false;
        if let Input::Watch(Watch::Changed(lease)) = input
            && !p.facts.holds
            && p.election.only_reads_after_events()
        {
            only_token = true;
            p.facts.noted(lease);
        } else if let Some((_, revision)) = p.facts.received(now, input, &p.tunables) {
            let durable = self.own.archive.durable.contains_key(&revision);
            self.found(earned::check_durable(durable));
        }
        let shown = match input {
            Input::Watch(Watch::Changed(lease))
            | Input::Reply {
                outcome: Outcome::Applied(Found::Lease(lease)),
                ..
            } => Some(lease),
            _ => None,
        };
        // The adapter may have combined two events into a document that was never stored.
        if let Some(lease) = shown
            && let Some((token, order)) = self.own.archive.durable.get(&lease.revision)
            && *token == lease.token
        {
            // An event of a delayed stream may be old, so its state does not count as the newest
            // state that the process has seen.
            let order = if only_token { 0 } else { *order };
            self.processes[process].facts.learned(lease, order);
        }
    }

    pub(super) fn after_turn(
        &mut self,
        process: usize,
        now: BootTime,
        before: Option<BootTime>,
        after: Option<BootTime>,
        acknowledged: Option<CallId>,
    ) {
        self.found(unknown::check(unknown::Turn {
            before,
            after,
            acknowledgement: acknowledged.is_some(),
        }));
        let p = &mut self.processes[process];
        let status = p.election.status();
        if before.is_none() && after.is_some() {
            p.facts.leads_since = now;
        }
        if before.is_none()
            && let Some(authority) = status.authority
            && let Some(claim) = p.facts.of_token_mut(authority.token)
            && claim.warned
        {
            claim.tolerated_until = 0;
        }
        if let (None, Some(authority)) = (before, status.authority)
            && let Some(facts) = p.facts.of_token(authority.token)
            && facts.sent.first().map(|(call, _, _)| *call) != acknowledged
        {
            self.coverage.hit(Hit::Path(Path::Adopted));
        }
        let back_off = p.facts.back_off.max(p.tunables.timings.retry_interval());
        p.facts.decided = now;
        p.facts.holds = after.is_some() || status.stepping_down.is_some();
        let requested = p.ledger.heard.requested().is_some();
        let (stopping, reason) = (status.stepping_down, status.reason);
        p.facts.says(now, stopping, reason, requested, &p.tunables);
        let backed_off = p.facts.back_off > back_off;
        self.coverage.hit_if(backed_off, Hit::Path(Path::BackedOff));
        self.audit_after(process, now);
    }

    pub(super) fn noticed(&mut self, process: usize, notice: &Notice) {
        self.note(|| format!("p{process} says {notice:?}"));
        self.coverage.hit(Hit::Said(Said::from(notice)));
        if let Notice::GivingWay { identity, priority } = notice {
            self.gives_way(process, identity, *priority);
        }
        let store_went_back = matches!(notice, Notice::StoreRolledBack { .. });
        if store_went_back {
            let p = &mut self.processes[process];
            let led = p.facts.claims.iter().rev().find(|c| c.led);
            // If this claim is stored again, it counts as another process's claim, and the process
            // waits until the claim has expired.
            if let Some(claim) = led.map(|c| c.claim) {
                p.ledger.resolve(claim);
            }
            for claim in p.facts.claims.iter_mut().filter(|claim| !claim.led) {
                claim.warned = true;
            }
        }
        let authority = self.processes[process].election.status().authority;
        self.found(must_stop::check(must_stop::Turn {
            store_went_back,
            ..must_stop::Turn::quiet(authority.is_some())
        }));
        self.found(notices_are_true::check(notices_are_true::Said {
            store_went_back,
            duplicate: matches!(notice, Notice::Duplicate { .. }),
            damaged: !self.own.damages.is_empty(),
            was_so: match notice {
                Notice::StoreRolledBack { found, .. } => self.was_so(process, *found),
                _ => true,
            },
            forked_or_edited: self.own.edited || !self.own.forks.is_empty(),
        }));
    }

    /// Checks the candidate that a leader hands over to, and records the reservation.
    fn gives_way(&mut self, process: usize, to: &Identity, priority: u32) {
        let p = &mut self.processes[process];
        let own = self.machines[p.machine].priority;
        let registered = self.own.registered.get(to).copied().unwrap_or(0);
        // A restored document may show a registration that is older than the leader's request.
        let answered = registered > p.ledger.asked_at || !self.own.damages.is_empty();
        let token = p.election.status().stepping_down;
        let reservation = Reservation {
            identity: to.clone(),
            duration: RESERVATION_DEFAULT,
        };
        p.ledger.transferred = token.map(|token| (token, reservation));
        self.found(preferred::check_preferred(Preferred {
            own,
            priority,
            answered,
        }));
    }

    pub(super) fn check_call(&mut self, process: usize, call: CallId, operation: &Operation) {
        let p = &self.processes[process];
        let decided = p.facts.decided;
        // After a freeze, a process handles older inputs first, so it might not know yet that its
        // guard is gone.
        let unaware = p
            .inbox
            .iter()
            .any(|(_, input)| matches!(input, Input::Health { healthy: false }));
        let alone = p
            .facts
            .alone_since
            .filter(|_| !unaware)
            .map(|since| decided.since(since));
        let mut found = None;
        let (mut chain_length, mut renewals) = (0, 0);
        match operation {
            Operation::Acquire(new)
            | Operation::TakeOver {
                acquisition: new, ..
            } => {
                let announced = self.announced(process, operation, new.expected);
                found = self.check_write(process, (new.expected, announced.as_ref()));
                found = found.or(self.check_workload_before(process, new.expected));
                found = found.or(guards::check(guards::Acquisition { alone }));
            }
            Operation::Renew { claim, chain, .. } => {
                chain_length = chain.len();
                renewals = 1 + p.ledger.renewals_in_flight(*claim);
                found = claims_lead_once::check(claims_lead_once::Use {
                    // A freeze may delay the call, so the check uses the state at the time when the
                    // process decided to send the call.
                    ended: p.facts.claim(*claim).is_none_or(|c| {
                        c.released || (c.led && c.until.is_some_and(|until| until <= decided))
                    }),
                    leads: false,
                    renews: true,
                });
            }
            Operation::Release {
                claim,
                chain,
                reserved_for,
                ended,
                ..
            } => {
                chain_length = chain.len();
                let token = p.facts.claim(*claim).map(|c| c.token);
                let asked = p.ledger.transferred.as_ref();
                let asked = asked.filter(|(of, _)| token == Some(*of));
                let release = transfers_reserve::Release {
                    transferred: asked.map(|(_, to)| to),
                    paused: ended.reason == Reason::Paused,
                    reserves: reserved_for.as_ref(),
                };
                let reserved = transfers_reserve::check(release);
                found = self.check_release(process, *claim).or(reserved);
            }
            Operation::Create { .. }
            | Operation::Read { .. }
            | Operation::Register { .. }
            | Operation::Withdraw { .. } => {}
        }
        self.found(found);
        let calls = self.processes[process].driver.len();
        self.found(bounds::check("calls", calls, CALLS_MAX));
        self.found(bounds::check("chain", chain_length, CHAIN_MAX));
        self.found(bounds::check("renewals in flight", renewals, RENEWALS_MAX));
        let p = &mut self.processes[process];
        if matches!(operation, Operation::Withdraw { .. }) && p.facts.holds {
            p.ledger.asked_at = self.now;
            self.coverage.hit(Hit::Path(Path::AskedAgain));
        }
        p.ledger.calls(call, operation);
        self.processes[process].hearing.calls(call, operation);
        self.tolerate_a_restarted_twin(process, operation);
        let p = &mut self.processes[process];
        match operation {
            Operation::Read { .. } => p.facts.last_read_at = self.now,
            Operation::Create { .. } | Operation::Acquire(_) | Operation::TakeOver { .. } => {
                p.facts.last_write_at = self.now;
            }
            _ => {}
        }
        let timings = p.tunables.timings;
        p.facts.calls(decided, call, operation, timings);
    }

    /// Returns the state that an acquisition expects, if the process knows this state only from a
    /// hint.
    fn announced(
        &self,
        process: usize,
        operation: &Operation,
        expected: Revision,
    ) -> Option<Sight> {
        let facts = &self.processes[process].facts;
        let seen = facts.sight(expected);
        let seen_free = seen.is_some_and(|sight| sight.lease.holder.is_none());
        let acquires = matches!(operation, Operation::Acquire(_)) && !seen_free;
        let announced = facts.announced().filter(|_| acquires);
        announced.filter(|sight| sight.lease.revision == expected)
    }

    fn check_write(
        &mut self,
        process: usize,
        (expected, announced): (Revision, Option<&Sight>),
    ) -> Option<Violation> {
        let p = &self.processes[process];
        let (facts, now) = (&p.facts, p.facts.decided);
        let sight = announced.or_else(|| facts.sight(expected));
        self.coverage
            .hit_if(announced.is_some(), Hit::Path(Path::ReleaseAnnounced));
        let holder = sight.and_then(|s| claim_of(&s.lease));
        let stays_out = facts.stay_out.is_some_and(|(until, _)| now < until)
            || facts.exit_until.is_some_and(|until| now < until);
        let own = holder.is_some_and(|h| facts.claim(h).is_some_and(|c| c.ended || !c.led));
        self.coverage.hit_if(own, Hit::Path(Path::OwnTakenOver));
        if let Some(reserved) = sight.and_then(|s| s.lease.reserved_for.as_ref()) {
            let mine = reserved.identity == self.machines[p.machine].identity;
            self.coverage
                .hit(Hit::Path(match (mine, reserved.is_head_start()) {
                    (true, false) => Path::ReservationUsed,
                    (false, false) => Path::ReservationWaited,
                    (true, true) => Path::HeadStartUsed,
                    (false, true) => Path::HeadStartWaited,
                }));
            let gave_way = self.own.gave_way.map(|last| last.token);
            let handed_over = gave_way == sight.map(|s| s.lease.token) && !reserved.is_head_start();
            let (took, passed) = (Path::PreferredTook, Path::PreferredPassed);
            self.coverage.hit_if(handed_over && mine, Hit::Path(took));
            self.coverage
                .hit_if(handed_over && !mine, Hit::Path(passed));
        }
        let priority = self.machines[p.machine].priority;
        let standby = sight.and_then(|s| s.lease.standby.as_ref());
        let lower = standby.is_some_and(|standby| standby.priority > priority);
        self.coverage.hit_if(lower, Hit::Path(Path::LowerWaited));
        followers::check(followers::Write {
            now,
            me: &self.machines[p.machine].identity,
            shown: sight.map(|s| (&s.lease, s.first)),
            own,
            dead: holder.is_some_and(|claim| facts.dead == Some(claim) && !self.lives(claim)),
            foreign: facts.foreign,
            stays_out,
            unhealthy: facts.unhealthy,
        })
    }

    fn check_workload_before(&self, process: usize, expected: Revision) -> Option<Violation> {
        let p = &self.processes[process];
        let sight = p.facts.sight(expected);
        let holder = sight.and_then(|s| claim_of(&s.lease));
        let dead = holder.filter(|claim| p.facts.dead == Some(*claim));
        release::check_acquisition(release::Acquisition {
            child_runs: self.child_runs(process),
            orphan_runs: dead.is_some_and(|claim| self.orphan_runs(p.directory, claim)),
        })
    }

    pub(super) fn check_commit(&mut self, committed: &Committed, token_before: Option<Token>) {
        let Committed {
            before,
            after,
            write: by,
            ..
        } = committed;
        let was_missing = before.document == Document::Missing;
        let was = match &after.document {
            Document::Missing => Was::Missing,
            Document::Foreign => Was::Foreign,
            Document::Lease(lease) => Was::Token(lease.token),
        };
        if self.own.was.last().map(|(_, was)| *was) != Some(was) {
            self.own.was.push((self.now, was));
        }
        self.check_neighbours(committed);
        self.found(bounds::check_change(bounds::Change {
            by_a_person: *by == Writer::Operator,
            was_foreign: before.document == Document::Foreign,
            was_missing,
            is_free_lease: after.lease().is_some_and(|l| l.holder.is_none()),
        }));
        self.found(bounds::check("history", after.history, HISTORY_MAX));
        let process = match *by {
            Writer::Process(process) => process,
            Writer::Operator => return self.tolerate_the_ignorant(committed, token_before),
        };
        let Some(lease) = after.lease() else {
            return;
        };
        if was_missing {
            let knowledge = self.processes[process].facts.knowledge_at_create;
            self.tolerate(knowledge, lease.token);
        }
        if let Some(old) = before.lease().filter(|old| old.revision == lease.revision)
            && let Some(standby) = lease.standby.as_ref()
            && old.standby.as_ref() != Some(standby)
        {
            let replaced = old.standby.as_ref().map(|standby| standby.priority);
            let path = Hit::Path(Path::StandbyReplaced);
            self.coverage.hit_if(replaced.is_some(), path);
            let (identity, now) = (standby.identity.clone(), self.now);
            self.own.registered.insert(identity, now);
            let priority = standby.priority;
            self.found(preferred::check_registration(replaced, priority));
        }
        let before_token = before.lease().map_or(Token::ZERO, |l| l.token);
        if let Some(held) = claim_of(lease)
            && Some(held) != before.lease().and_then(claim_of)
        {
            self.found(acquisitions_begin_clean::check(lease));
            let facts = self.processes[process].facts.claim(held);
            let known = facts.map_or(Token::ZERO, |c| c.known);
            let knowledge = facts.map(|c| c.knowledge).unwrap_or_default();
            let tolerated_until = self.tolerate(knowledge, lease.token);
            let tolerated = Hit::Path(Path::IgnorantTolerated);
            self.coverage.hit_if(tolerated_until > 0, tolerated);
            if let Some(facts) = self.processes[process].facts.claim_mut(held) {
                facts.tolerated_until = tolerated_until;
            }
            let undamaged = self.own.damages.is_empty();
            let highest = undamaged.then_some(self.own.token_highest);
            self.found(tokens_grow::check(tokens_grow::Acquired {
                token: lease.token,
                before: before_token,
                known,
                highest,
            }));
            if lease.token <= self.own.token_highest {
                self.own.tokens_reused_to = Some(self.own.token_highest);
            }
            self.own.token_highest = self.own.token_highest.max(lease.token);
        }
    }

    pub(super) fn check(&mut self) {
        let mut leading = Vec::new();
        let mut found = None;
        let forks = &self.own.forks;
        let twin_may = |claim, until| forks.iter().any(|fork| fork.tolerates(claim, until));
        for process in self.live.iter().copied() {
            let now = self.clock(process);
            let p = &mut self.processes[process];
            let http = p.published.authority.filter(|a| a.valid_until > now);
            let token = http.map(|a| a.token);
            let published = p.published.authority.map(|a| a.token);
            let acknowledged = p.facts.claims.iter_mut().filter(|c| c.until.is_some());
            for facts in acknowledged.rev().take(3) {
                let leads = token == Some(facts.token);
                found = found.or(claims_lead_once::check(claims_lead_once::Use {
                    ended: facts.ended,
                    leads,
                    renews: false,
                }));
                // A process may freeze after an acknowledgement and before it publishes the new
                // deadline. The process then shows the earlier deadline although its claim
                // continues.
                let unpublished =
                    published == Some(facts.token) && facts.until.is_some_and(|until| until > now);
                facts.ended |= facts.led && !leads && !unpublished;
                facts.led |= leads;
            }
            let Some(authority) = http else {
                if planted!(GaugeStored) && p.gauge {
                    let (name, earned) = ("gauge", None);
                    found = found.or(surfaces::check(Surface { name, now, earned }));
                }
                continue;
            };
            let facts = p.facts.of_token(authority.token);
            let earned = facts.and_then(|f| f.until);
            let says = authority.valid_until;
            found = found.or(earned::check(Authority { says, earned }));
            let name = "http";
            found = found.or(surfaces::check(Surface { name, now, earned }));
            if let Some(facts) = facts {
                leading.push(Leading {
                    process,
                    surface: "http",
                    claim: facts.claim,
                    token: facts.token,
                    tolerated: facts.tolerated_until > self.now
                        || twin_may(facts.claim, authority.valid_until),
                });
            }
        }
        for directory in &self.own.directories {
            for says in directory.files.iter().flatten() {
                let writer = &self.processes[says.process];
                let leads = writer.leads_now && writer.alive;
                let now = self.machine_clock(directory.machine, leads);
                if says.until <= now || says.boot != self.machines[directory.machine].boot {
                    continue;
                }
                let facts = writer.facts.claim(says.claim);
                let earned = facts.and_then(|f| f.until);
                let name = "file";
                found = found.or(surfaces::check(Surface { name, now, earned }));
                leading.push(Leading {
                    process: says.process,
                    surface: "file",
                    claim: says.claim,
                    token: says.token,
                    tolerated: facts.is_some_and(|f| f.tolerated_until > self.now)
                        || twin_may(says.claim, says.until),
                });
            }
        }
        found = found.or(one_leader::check(&leading));
        let first = leading.first().map(|l| (l.process, l.claim));
        let beside = leading.iter().any(|l| Some((l.process, l.claim)) != first);
        let of_both = |claim| forks.iter().any(|fork| fork.has(claim));
        let twins = beside && leading.iter().any(|l| l.tolerated && of_both(l.claim));
        self.coverage.hit_if(twins, Hit::Path(Path::TwinTolerated));
        self.found(found);
    }

    pub(super) fn leaders(&self) -> Vec<Token> {
        let leads = |p: &usize| self.processes[*p].published.at(self.clock(*p)).authority;
        let all = self.live.iter().filter_map(leads);
        all.map(|authority| authority.token).collect()
    }
}
