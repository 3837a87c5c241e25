//! One candidate's process. Like the event loop, it handles one input at a time, publishes the
//! status before it carries out the effects, and never drops a call. Inputs wait while the process
//! does not run. The process handles them later in the order of the event loop's `select!`.

use std::collections::VecDeque;
use std::time::Duration;

use super::cluster::Machine;
use super::containers::Connection;
use super::coverage::Call;
use super::files::{FileThread, RecoveredState};
use super::hearing::Hearing;
use super::ledger::Ledger;
use super::neighbours::Neighbour;
use super::observer::Facts;
use crate::election::mutation::planted;
use crate::election::{
    BootTime, CallId, Candidate, Election, Input, Lease, Released, Status, TimingSettings, Timings,
    Tunables,
};
use crate::proof::sim::driver::Driver;
use crate::proof::sim::ids::Ids;
use crate::proof::sim::rng::Rng;

/// Must equal the value in `calls.rs` of `leasehold-mongodb`.
pub(super) const CALLS_MAX: usize = 16;

/// The order in which the event loop handles pending inputs. The timer comes before all inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    Demoted,
    Machine,
    Reply,
    News,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Stream {
    /// The number of the current stream. The process drops events of an earlier stream.
    pub(super) opening: u64,
    pub(super) open: bool,
    pub(super) from: u64,
    pub(super) opened_at: u64,
    pub(super) silent: bool,
    /// True for a cursor on hints, and false for a change stream.
    pub(super) hints: bool,
    pub(super) hints_before: bool,
    /// True for a change stream through routers, which report each change seconds late.
    pub(super) late: bool,
    /// The cursor is on a member that receives no new writes, so the stream answers but reports no
    /// change.
    pub(super) stale: bool,
    /// The arrival time of the last event. Later events must not overtake this event.
    pub(super) last_at: u64,
}

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
    pub(super) random: Ids,
    pub(super) alive: bool,
    pub(super) frozen_until: u64,
    /// The point at which a freeze interrupts the next turn, and the length of the freeze.
    pub(super) stall_next: Option<(Cut, u64)>,
    pub(super) cut: Option<Cut>,
    pub(super) inbox: VecDeque<(Class, Input)>,
    /// The contents of the watch channel. HTTP and the metrics read it.
    pub(super) published: Status,
    /// With a planted bug, surfaces report this flag and ignore the deadline.
    pub(super) gauge: bool,
    pub(super) driver: Driver<Call>,
    pub(super) files: FileThread,
    pub(super) tunables: Tunables,
    pub(super) operation_timeout: Duration,
    pub(super) stream: Stream,
    /// The newest document that the adapter knows. The adapter applies events to this document.
    pub(super) newest: Option<Lease>,
    pub(super) holder_leaves_none: bool,
    /// True if the process found the collection of hints when it last opened a stream.
    pub(super) hints_usable: bool,
    /// The newest release that a hint will announce, with the call of the release.
    pub(super) announced: Option<(CallId, Released)>,
    /// Number of hints that the process's cursor has received.
    pub(super) hints_heard: u64,
    /// The renewal interval of the last stored acquisition. A reload does not change it.
    pub(super) tenure_interval: Option<Duration>,
    pub(super) neighbour: Neighbour,
    /// The number of effects after which the process is killed.
    pub(super) dies_after: Option<u64>,
    pub(super) streams: bool,
    pub(super) supervises: bool,
    /// This end of the connection with the guard in another container.
    pub(super) connection: Option<Connection>,
    /// The guard in another container that received the last order, until this guard has connected
    /// again or has exited.
    pub(super) ordered: Option<usize>,
    pub(super) checks_pass: bool,
    pub(super) exiting: bool,
    pub(super) signalled: bool,
    /// The linearizable read in flight. `confirmed` is true if this turn's input answers it.
    pub(super) confirming: Option<CallId>,
    pub(super) confirmed: bool,
    pub(super) facts: Facts,
    pub(super) ledger: Ledger,
    pub(super) hearing: Hearing,
    /// True if the process led after its last turn. The value is stored, because the clock depends
    /// on it with the planted bug `ServerClock`.
    pub(super) leads_now: bool,
}

pub(super) const TIMINGS_SHORT: u64 = 3;

/// Returns the durations of a candidate: the defaults, the usual Kubernetes durations, short
/// durations or long durations.
pub(super) fn timings(choice: u64) -> Timings {
    let settings = match choice % 5 {
        0 | 1 => TimingSettings::default(),
        2 => TimingSettings::of_millis([15_000, 10_000, 2_000, 1_000, 3_000, 3_000]),
        3 => TimingSettings::of_millis([8_000, 5_000, 700, 300, 1_000, 1_000]),
        _ => TimingSettings::of_millis([40_000, 30_000, 5_000, 1_000, 3_000, 3_000]),
    };
    Timings::new(settings).expect("the durations follow the rules")
}

pub(super) const LEASE_MAX: Duration = Duration::from_secs(40);

pub(super) fn tunables(rng: &mut Rng) -> Tunables {
    let handoff = [0, 0, 2_000, 12_000][rng.index(4)];
    Tunables {
        timings: timings(rng.next_u64()),
        handoff_delay: Duration::from_millis(handoff),
        workload_ends_first: rng.one_in(4),
        prefer_interval: None,
    }
}

impl Process {
    pub(super) fn start(
        (place, machine): (usize, &Machine),
        directory: usize,
        memory: RecoveredState,
        now: BootTime,
        random: Rng,
    ) -> Self {
        let tunables = machine.tunables;
        let mut given = tunables;
        if planted!(AnyHookConfirms) && machine.supervises {
            given.handoff_delay = Duration::ZERO;
        }
        let mut random = Ids::new(random);
        let candidate = Candidate {
            identity: machine.identity.clone(),
            tunables: given,
            token_remembered: memory.token,
            lease_longest_remembered: memory.lease_longest,
            supervises: machine.supervises,
            predecessor_claim: memory.claim,
            releases_predecessor: machine.releases_predecessor,
            stands_by: machine.stands_by,
            priority: machine.priority,
            // Candidates on machines with an odd boot number behave like earlier versions, which do
            // not align renewals with slots.
            shared_clock_offset: machine.boot.is_multiple_of(2).then_some(Duration::ZERO),
        };
        let election = Election::new(candidate, now, random.at(now));
        Self {
            machine: place,
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
            driver: Driver::new(),
            files: FileThread::new(),
            tunables,
            operation_timeout: tunables.timings.operation_timeout(),
            stream: Stream::default(),
            newest: None,
            holder_leaves_none: false,
            hints_usable: false,
            announced: None,
            hints_heard: 0,
            tenure_interval: None,
            neighbour: Neighbour::default(),
            dies_after: None,
            streams: machine.streams || machine.hints,
            supervises: machine.supervises,
            connection: None,
            ordered: None,
            checks_pass: true,
            exiting: false,
            signalled: false,
            confirming: None,
            confirmed: false,
            facts: Facts::new(memory, now),
            ledger: Ledger::default(),
            hearing: Hearing::new(now),
            leads_now: false,
        }
    }

    pub(super) fn close_stream(&mut self) -> u64 {
        self.stream = Stream {
            opening: self.stream.opening + 1,
            // Closing a late stream drops the events in flight.
            last_at: if self.stream.late {
                0
            } else {
                self.stream.last_at
            },
            hints_before: self.stream.hints,
            ..Stream::default()
        };
        self.stream.opening
    }

    pub(super) fn deliver(&mut self, class: Class, input: Input) {
        let place = self.inbox.iter().take_while(|(c, _)| *c <= class).count();
        self.inbox.insert(place, (class, input));
    }

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
