//! One candidate's process as the runner makes it: one input at a time, the
//! status published before the effects, calls that are never dropped, and
//! whatever comes while it does not run waits in the order of the `select!`.

use std::collections::VecDeque;
use std::time::Duration;

use super::coverage::Call;
use super::dice::Dice;
use super::files::{FileThread, Memory};
use super::hearing::Hearing;
use super::ledger::Ledger;
use super::neighbours::Neighbour;
use super::observer::Facts;
use crate::election::{
    BootTime, CallId, Candidate, Election, Identity, Input, Lease, Status, TimingSettings, Timings,
    Tunables,
};

/// As in `runner.rs`.
pub(super) const CALLS_MAX: usize = 16;

/// The order in which the runner takes what waits: the timer goes before all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    Demoted,
    Machine,
    Reply,
    News,
}

/// A call inside the driver.
#[derive(Debug, Clone, Copy)]
pub(super) struct Driven {
    pub(super) call: CallId,
    pub(super) kind: Call,
    pub(super) timed_out: bool,
}

/// The change stream of one process.
#[derive(Debug, Clone, Default)]
pub(super) struct Stream {
    /// Which opening this is: what belongs to an earlier one is not told.
    pub(super) opening: u64,
    pub(super) open: bool,
    pub(super) silent: bool,
    /// Its cursor is on a member that gets nothing new: it answers, and
    /// reports no change.
    pub(super) stale: bool,
    /// In order: no event overtakes another.
    pub(super) last_at: u64,
}

/// Where a turn was cut by a freeze.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    BeforePublish,
    BeforeEffects,
}

#[derive(Clone)]
pub(super) struct Process {
    pub(super) machine: usize,
    pub(super) directory: usize,
    pub(super) election: Election,
    pub(super) random: Dice,
    pub(super) alive: bool,
    pub(super) frozen_until: u64,
    /// The next turn is cut here.
    pub(super) stall_next: Option<(Cut, u64)>,
    pub(super) cut: Option<Cut>,
    pub(super) inbox: VecDeque<(Class, Input)>,
    /// What the watch channel holds: HTTP and metrics are computed from it.
    pub(super) published: Status,
    /// What a surface that stores a flag would show.
    pub(super) gauge: bool,
    pub(super) driver: Vec<Driven>,
    pub(super) files: FileThread,
    pub(super) tunables: Tunables,
    pub(super) operation_timeout: Duration,
    pub(super) stream: Stream,
    /// The newest document that its adapter knows, to which events are applied.
    pub(super) newest: Option<Lease>,
    /// The workload beside it, if it supervises none.
    pub(super) neighbour: Neighbour,
    /// It is killed when it has carried out so many effects more.
    pub(super) dies_after: Option<u64>,
    /// It has the right to change streams.
    pub(super) streams: bool,
    pub(super) supervises: bool,
    pub(super) exiting: bool,
    /// The last input was a signal to step down.
    pub(super) signalled: bool,
    /// The linearizable read that is under way, and whether this turn's input answers it.
    pub(super) confirming: Option<CallId>,
    pub(super) confirmed: bool,
    pub(super) facts: Facts,
    pub(super) ledger: Ledger,
    pub(super) hearing: Hearing,
    /// The instant of the last turn, for clocks that are broken on purpose.
    pub(super) leads_now: bool,
}

/// The choice of [`timings`] that gives the shortest durations.
pub(super) const TIMINGS_SHORT: u64 = 3;

/// The durations of a candidate: the defaults, Kubernetes', short and long ones.
pub(super) fn timings(choice: u64) -> Timings {
    let seconds = Duration::from_secs;
    let millis = Duration::from_millis;
    let settings = match choice % 5 {
        0 | 1 => TimingSettings::default(),
        2 => TimingSettings {
            lease_duration: seconds(15),
            renew_deadline: seconds(10),
            renew_interval: seconds(2),
            retry_interval: seconds(1),
            operation_timeout: seconds(3),
            loss_grace: seconds(3),
        },
        3 => TimingSettings {
            lease_duration: seconds(8),
            renew_deadline: seconds(5),
            renew_interval: millis(700),
            retry_interval: millis(300),
            operation_timeout: seconds(1),
            loss_grace: seconds(1),
        },
        _ => TimingSettings {
            lease_duration: seconds(40),
            renew_deadline: seconds(30),
            renew_interval: seconds(5),
            ..TimingSettings::default()
        },
    };
    Timings::new(settings).expect("the durations keep the rules")
}

/// The longest lease duration of [`timings`].
pub(super) const LEASE_MAX: Duration = Duration::from_secs(40);

pub(super) fn tunables(dice: &mut Dice) -> Tunables {
    let handoff = [0, 0, 2_000, 12_000][dice.index(4)];
    Tunables {
        timings: timings(dice.roll()),
        handoff_delay: Duration::from_millis(handoff),
        workload_ends_first: dice.one_in(4),
    }
}

impl Process {
    #[allow(clippy::too_many_arguments, reason = "made in one place")]
    pub(super) fn start(
        machine: usize,
        directory: usize,
        identity: Identity,
        tunables: Tunables,
        memory: Memory,
        now: BootTime,
        mut random: Dice,
        streams: bool,
        supervises: bool,
    ) -> Self {
        let candidate = Candidate {
            identity,
            tunables,
            token_remembered: memory.token,
            lease_longest_remembered: memory.lease_longest,
            supervises,
            predecessor_claim: memory.claim,
        };
        let election = Election::new(candidate, now, &mut random);
        Self {
            machine,
            directory,
            published: election.status().clone(),
            election,
            random,
            alive: true,
            frozen_until: 0,
            stall_next: None,
            cut: None,
            inbox: VecDeque::new(),
            gauge: false,
            driver: Vec::new(),
            files: FileThread::new(),
            tunables,
            operation_timeout: tunables.timings.operation_timeout(),
            stream: Stream::default(),
            newest: None,
            neighbour: Neighbour::ATTENTIVE,
            dies_after: None,
            streams,
            supervises,
            exiting: false,
            signalled: false,
            confirming: None,
            confirmed: false,
            facts: Facts::new(memory),
            ledger: Ledger::default(),
            hearing: Hearing::new(now),
            leads_now: false,
        }
    }

    /// Returns which opening comes next.
    pub(super) fn close_stream(&mut self) -> u64 {
        self.stream = Stream {
            opening: self.stream.opening + 1,
            last_at: self.stream.last_at,
            ..Stream::default()
        };
        self.stream.opening
    }

    /// Puts an input where the runner will find it.
    pub(super) fn deliver(&mut self, class: Class, input: Input) {
        let place = self.inbox.iter().take_while(|(c, _)| *c <= class).count();
        self.inbox.insert(place, (class, input));
    }

    /// The driver answers: `None` if nobody waits for this call any more.
    pub(super) fn returned(&mut self, call: CallId) -> Option<Driven> {
        let index = self.driver.iter().position(|d| d.call == call)?;
        Some(self.driver.remove(index))
    }

    /// Its `operation_timeout` is over: what it was, if it was still waited for.
    pub(super) fn timed_out(&mut self, call: CallId) -> Option<Call> {
        let driven = self.driver.iter_mut().find(|d| d.call == call)?;
        (!std::mem::replace(&mut driven.timed_out, true)).then_some(driven.kind)
    }

    /// A call is under way that is waited for.
    pub(super) fn calls_something(&self) -> bool {
        self.driver.iter().any(|d| !d.timed_out)
    }

    /// Nobody waits for this call any more.
    pub(super) fn gave_up(&self, call: CallId) -> bool {
        let driven = self.driver.iter().find(|d| d.call == call);
        driven.is_none_or(|d| d.timed_out)
    }

    /// The status goes into the channel; true if it is another one.
    pub(super) fn publish(&mut self) -> bool {
        let status = self.election.status();
        let changed = self.published != *status;
        if changed {
            self.published.clone_from(status);
            self.gauge = self.published.authority.is_some();
            self.files.wake();
        }
        changed
    }
}
