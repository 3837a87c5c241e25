//! The capped collection of hints, and the cursors on it. Candidates and operators write the hints.
//! A hint may be lost, late, repeated or false. The collection can be missing at the start, because
//! perhaps no candidate may create it, and a fault can drop it.

use std::time::Duration;

use super::cluster::World;
use super::coverage::{Call, Hit, Path};
use super::document::{Stored, claim_of};
use super::faults::Fault;
use super::invariants::takeovers_are_timely::{self as timely, Takeover};
use super::process::{Class, Process};
use crate::election::mutation::planted;
use crate::election::{
    CallId, Claim, Declared, HEAD_START, Input, Operation, Released, Revision, Watch,
};
use crate::proof::sim::rng::Rng;
use crate::proof::sim::world::AtPeace;
use crate::proof::sim::{MS, SECOND};

/// The longest time until a candidate notices that it may use hints.
const NOTICED_IN: u64 = 60 * SECOND;
/// The time that followers need to learn when the renewals happen.
const LEARNED_IN: u64 = 45 * SECOND;
/// The longest time from SIGTERM to the release, which the workload may delay.
const RELEASED_IN: u64 = 60 * SECOND;
/// The time after which a missing handoff is reported.
const ACQUIRED_IN: u64 = 10 * SECOND;

#[derive(Default)]
pub(super) struct Hints {
    pub(super) dice: Rng,
    gone_until: u64,
    /// The claim that holds the lease, and the true time of the claim's last renewal.
    renewed: Option<(Claim, u64)>,
}

impl Hints {
    pub(super) fn new(seed: u64) -> Self {
        let mut creation = Rng::new(seed, 22);
        let at_first = creation.one_in(2);
        Self {
            dice: Rng::new(seed, 15),
            gone_until: match at_first {
                true => 0,
                false => creation.between(1, 300) * SECOND,
            },
            ..Self::default()
        }
    }
}

fn declared(interval: Option<Duration>) -> Option<Duration> {
    match planted!(WrongIntervalDeclared) {
        true => interval.map(|interval| interval * 3 / 2),
        false => interval,
    }
}

/// Returns true if a process writes a hint after this kind of write.
fn is_hinted(kind: Call) -> bool {
    !matches!(kind, Call::Renew | Call::Read)
}

impl World {
    pub(super) fn draw_hints(&mut self) {
        let drawn = !self.own.hints.dice.one_in(6);
        let hints = drawn && self.faults.has(Fault::Hints);
        let machine = self.machines.last_mut().expect("one was added");
        machine.hints = hints;
        self.coverage.hit_if(hints, Hit::Fault(Fault::Hints));
    }

    pub(super) fn has_hints(&self) -> bool {
        self.own.hints.gone_until <= self.now
    }

    /// Makes each candidate try to use hints some time after the collection is created.
    pub(super) fn notice_hints(&mut self) {
        let latest = NOTICED_IN / SECOND;
        let at = self.own.hints.gone_until + self.own.hints.dice.between(1, latest) * SECOND;
        self.at(at, |world| {
            for process in world.live.clone() {
                let p = &world.processes[process];
                if world.machines[p.machine].hints && !p.hints_usable {
                    world.stream_reopens(process);
                }
            }
        });
    }

    /// Returns true if a process that opens a stream now finds the collection of hints.
    pub(super) fn finds_hints(&self, process: usize) -> bool {
        let p = &self.processes[process];
        let there = self.has_hints() || (planted!(DroppedHintsKept) && p.stream.hints_before);
        self.machines[p.machine].hints && there
    }

    /// Returns true if a process would open a cursor on hints now. The process must use hints, the
    /// collection must exist, and the last holder that the adapter saw must write hints.
    pub(super) fn follows_hints(&self, process: usize) -> bool {
        let leaves_none = self.processes[process].holder_leaves_none;
        self.finds_hints(process) && (!leaves_none || planted!(HintsOfNoneFollowed))
    }

    pub(super) fn choose_stream(&mut self, process: usize) {
        let p = &mut self.processes[process];
        let holder = p.newest.as_ref().and_then(|lease| lease.holder.as_ref());
        if let Some(holder) = holder {
            p.holder_leaves_none = holder.renew_interval.is_none();
        }
        let stream = &self.processes[process].stream;
        if stream.open && !stream.silent && stream.hints != self.follows_hints(process) {
            self.stream_reopens(process);
        }
    }

    /// Returns an operation as the process's adapter sends it. Only candidates that write hints
    /// declare their renewal interval.
    pub(super) fn declared_by(&self, process: usize, operation: &Operation) -> Operation {
        let mut operation = operation.clone();
        let hints = self.processes[process].hints_usable;
        if let Operation::Acquire(acquisition) | Operation::TakeOver { acquisition, .. } =
            &mut operation
        {
            acquisition.renew_interval = declared(acquisition.renew_interval.filter(|_| hints));
        }
        operation
    }

    /// Returns the interval that a renewal of the process declares; `None` if the process writes no
    /// hints.
    pub(super) fn declared_by_renewal(&self, process: usize) -> Option<Duration> {
        let p = &self.processes[process];
        let hints = p.hints_usable || planted!(DeclaredWithoutHints);
        declared(p.tenure_interval.filter(|_| hints))
    }

    /// May replace the primary just after an announced release. At that time, possibly only the old
    /// primary has the release.
    pub(super) fn disturb_release(
        &mut self,
        process: usize,
        claim: Claim,
        quick: u64,
        chance: u64,
    ) {
        let mut rng = Rng::new(chance, 27);
        let announced = self.processes[process].announced.as_ref();
        let quickly = announced.is_some_and(|(_, released)| released.claim == claim);
        if quickly && rng.one_in(8) && self.strikes(true, Fault::Failover) {
            let at = self.now + quick + rng.below(20) * MS;
            self.at_or(AtPeace::Drop, at, move |world| {
                world.fail_over(Fault::Failover, &mut rng);
            });
        }
    }

    /// Returns the release if the process announces it with a hint. A process announces only the
    /// first release of a claim, and the primary alone acknowledges this release.
    pub(super) fn announces(&self, process: usize, operation: &Operation) -> Option<Released> {
        let p = &self.processes[process];
        let usable = |claim: &Claim| {
            let announced = p.announced.as_ref().map(|(_, released)| released.claim);
            p.hints_usable && announced != Some(*claim)
        };
        match operation {
            Operation::Release {
                claim,
                revision,
                reserved_for: Some(reserved_for),
                ..
            } if usable(claim) => Some(Released {
                claim: *claim,
                revision: *revision,
                reserved_for: reserved_for.identity.clone(),
            }),
            _ => None,
        }
    }

    pub(super) fn hint_after(&mut self, process: usize, call: CallId, kind: Call) {
        let p = &self.processes[process];
        let announced = p.announced.clone().filter(|(id, _)| *id == call);
        if p.hints_usable && is_hinted(kind) && !self.machines[p.machine].stale {
            if announced.is_some() && !planted!(OthersNotHinted) {
                self.hint_others_later(process);
            }
            let hint = announced.map_or(Watch::Hint, |(_, released)| Watch::Released(released));
            let at = self.now + self.own.hints.dice.between(1, 3) * MS;
            self.at(at, move |world| world.hint_lands(Some(process), &hint));
        }
    }

    /// Writes another hint after the head start, for the candidates that the release does not name,
    /// unless the process receives a hint of an acquisition before. An exiting process waits.
    fn hint_others_later(&mut self, process: usize) {
        let heard = self.processes[process].hints_heard;
        let head_start = u64::try_from(HEAD_START.as_nanos()).expect("short");
        let at = self.now + head_start + self.own.hints.dice.between(1, 3) * MS;
        self.at(at, move |world| {
            let p = &world.processes[process];
            if p.alive && !world.is_frozen(process) && p.hints_heard == heard {
                world.hint_lands(Some(process), &Watch::Hint);
            }
        });
    }

    /// Writes a hint after an operator's write. Some operators use an earlier version, which writes
    /// no hints.
    pub(super) fn hint_of_operator(&mut self) {
        if !self.own.hints.dice.one_in(4) || self.calm {
            let at = self.now + self.own.hints.dice.between(3, 6) * MS;
            self.at(at, |world| world.hint_lands(None, &Watch::Hint));
        }
    }

    fn hint_lands(&mut self, from: Option<usize>, hint: &Watch) {
        if !self.has_hints() {
            return;
        }
        let lost = self.own.hints.dice.one_in(4);
        if self.strikes(lost, Fault::HintLost) {
            return;
        }
        let late = self.own.hints.dice.one_in(4);
        let delay = self.own.hints.dice.between(1, 20_000) * MS;
        if self.strikes(late, Fault::HintLate) {
            let at = self.now + delay;
            let hint = hint.clone();
            self.at(at, move |world| world.hint_others(from, &hint));
            if self.own.hints.dice.one_in(2) {
                return;
            }
        }
        self.hint_others(from, hint);
    }

    fn hint_others(&mut self, from: Option<usize>, hint: &Watch) {
        for process in self.live.clone() {
            let machine = &self.machines[self.processes[process].machine];
            // The server sends a release for a named candidate only to this candidate.
            let of_another = matches!(
                hint,
                Watch::Released(released) if released.reserved_for != machine.identity
            );
            if Some(process) != from && !of_another {
                self.hint_to(process, hint);
            }
        }
    }

    pub(super) fn false_hints(&mut self) {
        let mut hint = Watch::Hint;
        if planted!(HintTrusted)
            && let Some(mut lease) = self.set.committed().lease().cloned()
            && let Some(holder) = &mut lease.holder
        {
            holder.lease_duration = Declared { millis: 1_000 };
            hint = Watch::Changed(lease);
        }
        for process in self.live.clone() {
            for _ in 0..self.own.hints.dice.between(1, 4) {
                self.hint_to(process, &hint);
            }
            if let Some(released) = self.false_release(process) {
                self.hint_to(process, &Watch::Released(released));
            }
        }
    }

    /// Announces a release that did not happen: with the stored revision, or with another revision.
    fn false_release(&mut self, process: usize) -> Option<Released> {
        let dice = &mut self.own.hints.dice;
        let (drawn, current) = (dice.one_in(3), dice.one_in(2));
        let bits = u128::from(dice.below(u64::MAX)).to_be_bytes();
        let lease = self.set.committed().lease().filter(|_| drawn)?;
        let machine = &self.machines[self.processes[process].machine];
        Some(Released {
            claim: claim_of(lease)?,
            revision: match current {
                true => lease.revision,
                false => Revision::from_bytes(bits),
            },
            reserved_for: machine.identity.clone(),
        })
    }

    fn hint_to(&mut self, process: usize, hint: &Watch) {
        let stream = &self.processes[process].stream;
        if stream.open && stream.hints && !stream.silent && !stream.stale {
            self.processes[process].hints_heard += 1;
            self.notify(process, hint.clone());
        }
    }

    /// Drops the collection for a while. The server closes the cursors on the collection.
    pub(super) fn drop_hints(&mut self, length: u64) {
        self.own.hints.gone_until = self.now + length;
        self.notice_hints();
        for process in self.live.clone() {
            if self.processes[process].stream.hints && !planted!(DroppedHintsKept) {
                self.stream_ends(process);
            }
        }
    }

    pub(super) fn note_renewal(&mut self, before: &Stored, after: &Stored) {
        let revision = |stored: &Stored| stored.lease().map(|lease| lease.revision);
        if revision(before) != revision(after) {
            let claim = after.lease().and_then(claim_of);
            let declares = |stored: &Stored| {
                let holder = stored.lease()?.holder.as_ref()?;
                Some((holder.claim, holder.renew_interval.is_some()))
            };
            let began = declares(before)
                .zip(declares(after))
                .is_some_and(|(before, after)| before.0 == after.0 && !before.1 && after.1);
            self.coverage
                .hit_if(began, Hit::Path(Path::HintsDeclaredLate));
            self.own.hints.renewed = claim.map(|claim| (claim, self.now));
        }
    }

    /// Ends the leadership long after the last fault. In half of the runs, the leader releases the
    /// lease; in the others, the leader is killed.
    pub(super) fn end_leadership_in_peace(&mut self) {
        match self.own.hints.dice.one_in(2) {
            true => self.hand_off(),
            false => self.kill_leader_read_in_phase(),
        }
    }

    /// Sends SIGTERM to the leader. A follower must acquire the released lease soon, because the
    /// leader's hint or an event of the stream wakes the follower.
    fn hand_off(&mut self) {
        let is_woken = |p: &Process| {
            let stream = &p.stream;
            stream.open && !stream.late && !stream.stale && !stream.silent
        };
        let Some(leader) = self.followed_leader(is_woken) else {
            return;
        };
        if self.live.len() > 2 && self.own.hints.dice.one_in(2) {
            self.kill_standby(leader);
        }
        self.input(leader, Class::Machine, Input::StepDown);
        let is_free = |world: &Self| world.own.hints.renewed.is_none();
        self.run_until(self.now + RELEASED_IN, is_free);
        if !is_free(self) {
            return;
        }
        let released = self.now;
        self.run_until(released + ACQUIRED_IN, |world| !is_free(world));
        self.coverage.hit(Hit::Path(Path::TimelyHandoff));
        let after = Duration::from_nanos(self.now - released);
        self.found(timely::check_handoff(after));
    }

    /// Kills the standby, which stays registered. Another follower must still acquire in time.
    fn kill_standby(&mut self, leader: usize) {
        let lease = self.set.committed().lease();
        let Some(standby) = lease.and_then(|lease| lease.standby.clone()) else {
            return;
        };
        let is_standby = |p: &usize| {
            *p != leader && self.machines[self.processes[*p].machine].identity == standby.identity
        };
        if let Some(crashed) = self.live.iter().copied().find(is_standby) {
            self.kill(crashed);
            self.coverage.hit(Hit::Path(Path::StandbyCrashed));
        }
    }

    /// Kills the leader. A follower that reads each renewal on time must take over soon after the
    /// lease has expired, because nothing else in the run causes a delay.
    fn kill_leader_read_in_phase(&mut self) {
        let Some(leader) = self.timely_leader() else {
            return;
        };
        self.run_until(self.now + LEARNED_IN, |_| false);
        let Some((claim, _)) = self.own.hints.renewed else {
            return;
        };
        if self.timely_leader() != Some(leader) || self.violation.is_some() {
            return;
        }
        let timings = self.processes[leader].tunables.timings;
        let Some(lease_duration) = self.declared(claim) else {
            return;
        };
        self.kill(leader);
        // The last renewal of the killed leader may be in flight.
        self.run_until(self.now + SECOND, |_| false);
        let Some((_, renewed)) = self.own.hints.renewed.filter(|(of, _)| *of == claim) else {
            return;
        };
        let most = lease_duration + timings.renew_interval() + Duration::from_secs(5);
        let until = renewed + u64::try_from(most.as_nanos()).expect("short");
        let taken = move |world: &Self| world.own.hints.renewed.is_some_and(|(of, _)| of != claim);
        self.run_until(until, taken);
        self.coverage.hit(Hit::Path(Path::TimelyTakeover));
        let after = Duration::from_nanos(self.now - renewed);
        self.found(timely::check(Takeover {
            after,
            lease_duration,
        }));
    }

    fn declared(&self, claim: Claim) -> Option<Duration> {
        let holder = self.set.committed().lease()?.holder.as_ref()?;
        let declared = holder.lease_duration.valid();
        declared.filter(|_| holder.claim == claim)
    }

    /// Returns the leader if followers learn of its renewals in time. Each follower follows hints,
    /// or follows a late stream and assumes the leader's renewal interval.
    fn timely_leader(&self) -> Option<usize> {
        let routed = self.faults.has(Fault::Routers);
        let leader = &self.processes[self.leader()?];
        let is_timely = |p: &Process| {
            // Without a declared interval, a follower assumes its own interval.
            let assumed = Some(p.tunables.timings.renew_interval());
            let late = p.stream.late && leader.tenure_interval == assumed;
            p.stream.open && (p.stream.hints && self.machines[p.machine].hints || late)
        };
        let leader = self.followed_leader(is_timely)?;
        (self.processes[leader].hints_usable || routed).then_some(leader)
    }

    fn leader(&self) -> Option<usize> {
        let leads = |p: &usize| self.processes[*p].leads_now;
        self.live.iter().copied().find(leads)
    }

    /// Returns the leader if every process runs without delay at the rate of true time, every
    /// follower may acquire the lease, and `follows` is true for every follower.
    fn followed_leader(&self, follows: impl Fn(&Process) -> bool) -> Option<usize> {
        let leader = self.leader()?;
        let free = |process: &usize| {
            let p = &self.processes[*process];
            let eager = p.facts.stay_out.is_none() && p.facts.exit_until.is_none();
            self.machines[p.machine].clock.rate == 1000
                && !p.supervises
                && !p.facts.foreign
                && (*process == leader || eager && !p.facts.holds && follows(p))
        };
        let followed = self.live.len() > 1 && self.own.forks.is_empty();
        (followed && self.own.damages.is_empty() && self.live.iter().all(free)).then_some(leader)
    }
}
