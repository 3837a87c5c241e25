//! The election itself, without IO: no clock, no network, no task.
//!
//! [`Election`] is a state machine. It is told the time and what happened
//! ([`Election::handle`]), and asks for effects ([`Election::next_effect`]) and
//! to be called again at an instant ([`Election::next_wakeup`]). The runner
//! drains the effects before it brings the next input. What a simulator drives
//! is the same type that the daemon ships.
//!
//! The rules of the protocol and why they are safe: `docs/protocol.md`.

#![warn(clippy::wildcard_enum_match_arm)]

#[cfg(test)]
#[macro_use]
pub mod mutation;
pub mod reference;

mod contend;
mod create;
mod decide;
mod drain;
mod effect;
mod finish;
mod input;
mod lead;
mod lease;
mod memory;
mod reading;
mod status;
mod summary;
mod supervise;
mod tenure;
mod time;
mod timings;
mod view;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

pub use effect::*;
pub use input::*;
pub use lease::*;
pub use status::*;
pub use time::BootTime;
pub use timings::*;

use contend::Contending;
use drain::Unnoticed;
use lead::Stopping;
use memory::Remembered;
use supervise::Supervised;
use tenure::Tenure;
use view::View;

/// Claims of this process whose fate in the store is open. Each failed attempt
/// adds one and each successful read settles them, so more than a few are
/// never needed; a forgotten one is waited out like a stranger's.
const OPEN_CLAIMS_MAX: usize = 32;

/// Who a candidate is and how it behaves.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Candidate {
    /// Its name.
    pub identity: Identity,
    /// Its durations.
    pub tunables: Tunables,
    /// The highest token that the status directory remembers.
    pub token_remembered: Token,
    /// The longest lease duration that was seen up to that token, if the
    /// status directory remembers one.
    pub lease_longest_remembered: Option<Duration>,
    /// It supervises its workload: [`Effect::Workload`] is carried out.
    pub supervises: bool,
    /// The claim that the status directory remembers, if the process that made
    /// it is proven dead: its lock is ours, in the same boot.
    pub predecessor_claim: Option<Claim>,
}

/// One candidate for one lease.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Election {
    identity: Identity,
    tunables: Tunables,
    predecessor_claim: Option<Claim>,
    session: Session,
    state: State,
    view: View,
    /// Acquisitions of unknown outcome: found as the holder, they are adopted (or released).
    pending: Vec<Attempt>,
    /// Ended claims that may still be stored, with every revision they may have.
    ended: Vec<Ended>,
    token_highest: Token,
    remembered: Remembered,
    /// Not before this instant, unless another claim leads first.
    stay_out: Option<StayOut>,
    /// The store went back: nobody here contends before this instant.
    quarantine: Option<BootTime>,
    /// How far candidates that were woken together spread out.
    spread: Duration,
    /// A free lease is not acquired before this instant: the spread of the revision seen.
    eager_at: BootTime,
    /// When leadership was last lost by deadline.
    deadline_loss: Option<BootTime>,
    watch_open: bool,
    /// When a reply last showed the document.
    looked_at: BootTime,
    /// Its workload cannot work: it leaves the lease to others.
    unhealthy: bool,
    /// The leadership that was lost last, until a workload that is not
    /// supervised has had its time to notice.
    unnoticed: Option<Unnoticed>,
    /// A request for another token than the leader's that was reported.
    request_reported: Option<Request>,
    /// The workload that this candidate runs, if it supervises one.
    workload: Supervised,
    /// Set by [`Input::Shutdown`].
    shutdown: Option<Shutdown>,
    reading: Option<Reading>,
    /// When to read next; `None`: only when a hint arrives.
    read_due: Option<BootTime>,
    /// The next read is to be linearizable: a reply claimed that the store went back.
    suspicious: bool,
    calls: u64,
    now: BootTime,
    wakeup: Option<BootTime>,
    reason: Option<Reason>,
    status: Status,
    effects: VecDeque<Effect>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum State {
    Contending(Contending),
    Leading(Tenure),
    Stopping(Stopping),
    Exited,
}

/// An acquisition that was sent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Attempt {
    call: CallId,
    claim: Claim,
    /// Every revision of this claim that may be stored.
    chain: Vec<Revision>,
    token: Token,
    sent: BootTime,
    timings: Timings,
}

/// A claim that led and never will again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Ended {
    claim: Claim,
    chain: Vec<Revision>,
    entry: HistoryEntry,
    reserved_for: Option<Reservation>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct StayOut {
    until: BootTime,
    /// Over as soon as another process holds the lease with a higher token.
    token: Token,
    /// What is stored of this process is a claim that ended. A late reply or
    /// event shows it with a token that an operator raised, like a successor's.
    session: Session,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Shutdown {
    /// When to end at the latest; set once nothing but the release is left.
    by: Option<BootTime>,
    /// A file still names a deadline ahead: the lease must expire by itself.
    keep: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Reading {
    call: CallId,
    confirm: bool,
    /// The token that the document was known to have when the read was sent.
    token_known: Option<Token>,
    /// It checks that the open stream reports what changes.
    checks_stream: bool,
    /// An event came since the read was sent.
    overtaken: bool,
}

/// One call of [`Election::handle`]: what every step of it needs.
struct Turn<'a> {
    now: BootTime,
    random: &'a mut dyn Randomness,
}

impl Turn<'_> {
    /// `duration` spread by 20 % on either side.
    fn jittered(&mut self, duration: Duration) -> Duration {
        let spread = 2 * u128::from(JITTER_PERCENT) * 10 + 1;
        let per_mille = u32::try_from(self.random.bits() % spread).unwrap_or(0);
        duration.saturating_mul(1000 - JITTER_PERCENT * 10 + per_mille) / 1000
    }

    /// Something between nothing and `most`.
    fn up_to(&mut self, most: Duration) -> Duration {
        let nanos = most.as_nanos() + 1;
        Duration::from_nanos(u64::try_from(self.random.bits() % nanos).unwrap_or(0))
    }
}

impl Election {
    /// A candidate that has read nothing yet; it begins with its first input,
    /// a [`Input::Tick`] will do.
    pub fn new(candidate: Candidate, now: BootTime, random: &mut dyn Randomness) -> Self {
        let Candidate {
            identity,
            tunables,
            token_remembered,
            lease_longest_remembered,
            supervises,
            predecessor_claim,
        } = candidate;
        let own = tunables.timings.lease_duration();
        let lease_longest = lease_longest_remembered.map_or(own, |longest| longest.max(own));
        let session = Session::random(random);
        Self {
            identity,
            tunables,
            predecessor_claim,
            session,
            state: State::Contending(Contending::default()),
            view: View::new(token_remembered, lease_longest),
            pending: Vec::new(),
            ended: Vec::new(),
            token_highest: token_remembered,
            remembered: Remembered {
                claim: predecessor_claim,
                token: token_remembered,
                lease_longest,
            },
            stay_out: None,
            quarantine: None,
            spread: Duration::ZERO,
            eager_at: now,
            deadline_loss: None,
            watch_open: false,
            looked_at: now,
            unhealthy: false,
            unnoticed: None,
            request_reported: None,
            workload: Supervised::new(supervises),
            shutdown: None,
            reading: None,
            read_due: Some(now),
            suspicious: false,
            calls: 0,
            now,
            wakeup: Some(now),
            reason: None,
            status: Status {
                token_highest: token_remembered,
                ..Status::initial(session, now)
            },
            effects: VecDeque::new(),
        }
    }

    /// Takes one input at `now` and does all that is due.
    pub fn handle(&mut self, now: BootTime, input: Input, random: &mut dyn Randomness) {
        // A caller that reads the clock before it waits for a lock could go
        // back; time that went by stays gone.
        self.now = self.now.max(now);
        let mut turn = Turn {
            now: self.now,
            random,
        };
        // First of all, whatever the input is: at its deadline a claim has
        // ended, and an acknowledgement that waited in a frozen process is late.
        if planted!(AcknowledgedAfterDeadline) {
            self.apply(input, &mut turn);
            self.expire(&mut turn);
        } else {
            self.expire(&mut turn);
            self.apply(input, &mut turn);
        }
        self.advance(&mut turn);
        self.remember();
        self.refresh_status();
        self.check_invariants();
    }

    /// The next thing to do, in order. Drain before the next input.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When to bring a [`Input::Tick`] if nothing else happens before.
    pub fn next_wakeup(&self) -> Option<BootTime> {
        self.wakeup
    }

    /// What to publish. Ask [`Status::at`] before showing it.
    pub fn status(&self) -> &Status {
        &self.status
    }

    fn apply(&mut self, input: Input, turn: &mut Turn<'_>) {
        match input {
            Input::Tick => {}
            Input::Reply { call, outcome } => self.reply(call, outcome, turn),
            Input::Watch(watch) => self.watch(watch, turn),
            Input::PrimaryChanged => self.primary_changed(turn),
            Input::Demoted { shown } => self.demoted(shown, turn.now),
            Input::WorkloadDone { token } => self.workload_done(token),
            Input::WorkloadEnded { token } => self.workload_ended(token, turn),
            Input::WorkloadGone { token } => self.workload_gone(token, turn),
            Input::Health { healthy } => self.health(healthy, turn),
            Input::StepDown => self.stop(Reason::Requested, None, turn),
            Input::Shutdown => self.shut_down(turn),
            Input::Reconfigure(tunables) => {
                self.tunables = tunables;
                if let (true, Some(tenure)) = (planted!(TimingsReloaded), self.tenure_mut()) {
                    tenure.timings = tunables.timings;
                }
            }
        }
    }

    /// Finds the call that a reply answers. One that nobody waits for any
    /// more has no meaning left.
    fn reply(&mut self, call: CallId, outcome: Outcome, turn: &mut Turn<'_>) {
        if matches!(outcome, Outcome::Applied(_) | Outcome::Rejected) {
            self.contact(turn.now);
        }
        // Also of an answer that nobody waits for any more: the token was used.
        if let Outcome::Applied(Found::Lease(lease)) = &outcome {
            self.heed(lease);
        }
        if self.reading.is_some_and(|reading| reading.call == call) {
            self.read_reply(outcome, turn);
        } else if self.tenure().is_some() {
            self.renewal_reply(call, outcome, turn);
        } else {
            self.contender_reply(call, outcome, turn);
        }
    }

    fn watch(&mut self, watch: Watch, turn: &mut Turn<'_>) {
        match watch {
            Watch::Lost => {
                self.watch_open = false;
                if self.tenure().is_none() {
                    self.read_soon(turn.now);
                }
                return;
            }
            Watch::Opened => {
                // Open first, then read: what changed in between is not
                // missed. A read under way may have been answered before.
                self.watch_open = true;
                if !planted!(NoReadAfterOpen) {
                    self.reading = None;
                    self.read_soon(turn.now);
                }
            }
            Watch::Alive => {}
            Watch::Unclear => {
                self.view.behind = true;
                self.read_soon(turn.now);
            }
            Watch::Changed(lease) => self.hint(lease, turn),
        }
        self.contact(turn.now);
    }

    /// An event is a hint: it may be older than what was read, and it grants nothing.
    fn hint(&mut self, lease: Lease, turn: &mut Turn<'_>) {
        self.heed(&lease);
        let found = Found::Lease(lease);
        let believed = self.view.judge(&found) == view::Plausible::Yes;
        let Found::Lease(lease) = found else { return };
        #[cfg(test)]
        if let (true, Some(tenure)) = (planted!(EventAsAuthority), self.tenure_mut()) {
            tenure.acknowledged_by_event(lease.revision);
        }
        match self.tenure() {
            Some(tenure) => {
                if !tenure.sent(lease.revision) || self.demand(&lease).is_some() {
                    self.read_soon(turn.now);
                }
            }
            None if believed => {
                self.observe(Found::Lease(lease), turn);
                if let Some(reading) = &mut self.reading {
                    reading.overtaken = !planted!(LateReadBelieved);
                }
            }
            None => self.fall_behind(turn.now),
        }
    }

    fn primary_changed(&mut self, turn: &mut Turn<'_>) {
        self.leave_old_primary();
        if let Some(tenure) = self.tenure_mut() {
            if !planted!(NewPrimaryAwaited) {
                tenure.hurry();
            }
        } else if self.read_due.is_some() {
            self.read_soon(turn.now);
        }
    }

    fn health(&mut self, healthy: bool, turn: &mut Turn<'_>) {
        self.unhealthy = !healthy;
        if self.unhealthy && !planted!(UnhealthyLeads) {
            self.stop(Reason::Unhealthy, None, turn);
        }
    }

    fn shut_down(&mut self, turn: &mut Turn<'_>) {
        if self.shutdown.is_none() {
            self.shutdown = Some(Shutdown {
                by: None,
                keep: false,
            });
            self.hurry_drain(turn.now);
            self.stop(Reason::Shutdown, None, turn);
        }
    }

    /// Sends a call.
    fn call(&mut self, operation: Operation) -> CallId {
        self.calls += 1;
        let id = CallId(self.calls);
        self.effects.push_back(Effect::Call { id, operation });
        id
    }

    fn notice(&mut self, notice: Notice) {
        self.effects.push_back(Effect::Notice(notice));
    }

    fn contact(&mut self, now: BootTime) {
        self.view.contact = Some(now);
    }

    fn tenure(&self) -> Option<&Tenure> {
        match &self.state {
            State::Leading(tenure) => Some(tenure),
            State::Stopping(stopping) => Some(&stopping.tenure),
            State::Contending(_) | State::Exited => None,
        }
    }

    fn tenure_mut(&mut self) -> Option<&mut Tenure> {
        match &mut self.state {
            State::Leading(tenure) => Some(tenure),
            State::Stopping(stopping) => Some(&mut stopping.tenure),
            State::Contending(_) | State::Exited => None,
        }
    }

    /// Does all that is due and says when to come back.
    fn advance(&mut self, turn: &mut Turn<'_>) {
        let next = match &self.state {
            State::Exited => None,
            State::Leading(_) | State::Stopping(_) => self.lead(turn),
            State::Contending(_) => self.contend(turn),
        };
        let silent = self.silent_at().filter(|at| *at > turn.now);
        self.wakeup = match self.state {
            State::Exited => None,
            State::Contending(_) => earliest([next, silent]),
            State::Leading(_) | State::Stopping(_) => next,
        };
    }

    /// When the store will have been silent for a lease duration.
    fn silent_at(&self) -> Option<BootTime> {
        self.view
            .contact
            .map(|at| at + self.tunables.timings.lease_duration())
    }
}

fn earliest<const N: usize>(instants: [Option<BootTime>; N]) -> Option<BootTime> {
    instants.into_iter().flatten().min()
}

/// Appends, and forgets the oldest beyond [`OPEN_CLAIMS_MAX`].
fn push_bounded<T>(list: &mut Vec<T>, item: T) {
    if list.len() == OPEN_CLAIMS_MAX {
        list.remove(0);
    }
    list.push(item);
}
