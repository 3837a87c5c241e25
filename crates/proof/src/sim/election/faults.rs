use crate::proof::sim::faults::{Kind as _, Planned, faults, plan};
use crate::proof::sim::rng::Rng;
use crate::proof::sim::{MS, SECOND};

/// The simulation injects faults in the first ten minutes of a run, as `docs/verification.md`
/// states.
pub(super) const RUN: u64 = 600 * SECOND;

faults! {
    of calls,
    /// A process does not run for a while, often for longer than its lease.
    Freeze,
    /// A process stops between a decision and its effects.
    Stall,
    /// Clocks run at different rates, within the permitted ratio.
    Drift,
    /// A machine sleeps: CLOCK_BOOTTIME continues, CLOCK_MONOTONIC does not.
    Suspend,
    /// A wall clock is set to another time.
    WallJump,
    /// The primary fails; a random part of the writes that are not majority-committed is lost.
    Failover,
    /// The primary is deposed and continues to answer some clients for a while.
    Deposed,
    /// No write is acknowledged for a while.
    MajorityLost,
    /// A machine cannot reach the store.
    Partition,
    /// A change stream stops reporting without being closed.
    StreamSilent,
    /// A change stream answers but no longer reports changes, because its cursor is on a member
    /// that lags or is locked for a backup.
    StreamDeaf,
    /// A late event shows the newest document again, an old document, or an old document with some
    /// newer fields.
    StreamStale,
    /// A change stream breaks.
    StreamLost,
    /// A candidate lacks the right to open change streams.
    NoStreams,
    /// The driver reports a new primary although the primary has not changed.
    PrimaryChanged,
    /// A process is killed and starts again with its directory.
    Restart,
    /// A process is killed and starts again without its directory.
    RestartWiped,
    /// A process is killed and starts again with a copy of its directory.
    RestartCopied,
    /// A directory is copied while its process runs, and another process starts with the copy,
    /// possibly on another machine where the file has an equal inode number.
    CopiedAlive,
    /// A machine reboots.
    Reboot,
    /// A second process starts while the first process is frozen and holds the lock.
    Replaced,
    /// A machine is cloned while it runs.
    Fork,
    /// The document is deleted.
    Delete,
    /// The document is restored to an older state.
    Restore,
    /// A document that is not a lease replaces the lease for a while.
    Foreign,
    /// An operator edits the holder's declared duration.
    EditDuration,
    /// An operator edits the revision.
    EditRevision,
    /// An operator pauses and resumes the lease.
    Pause,
    /// An operator asks the holder to step down.
    StepDownRequest,
    /// An operator asks for a transfer.
    Transfer,
    /// An operator's request names a token that is not the holder's.
    StaleRequest,
    /// An operator acts at about the time when a candidate adopts an acquisition of unknown
    /// outcome.
    Meddling,
    /// SIGUSR1.
    Signal,
    /// SIGTERM; the process starts again later.
    Shutdown,
    /// SIGHUP with other durations.
    Reconfigure,
    /// A disk takes up to two seconds per write.
    DiskSlow,
    /// A disk is full.
    DiskFull,
    /// A disk is read-only.
    DiskReadOnly,
    /// A disk does not answer.
    DiskHangs,
    /// A workload never confirms its end.
    WorkloadSilent,
    /// A workload is unhealthy for a while.
    Unhealthy,
    /// Candidates run their workloads as supervised children, each under a guard.
    Supervised,
    /// A guard is frozen for a while, or starts late.
    GuardFrozen,
    /// A guard and its daemon are frozen for a while.
    BothFrozen,
    /// A guard is killed.
    GuardKilled,
    /// A guard and its daemon are killed simultaneously, and the daemon is restarted.
    BothKilled,
    /// Records of a daemon reach its guard only after the previous deadline has passed.
    RecordsLate,
    /// A child ends by itself, often soon after its start.
    ChildCrashes,
    /// A child ignores the signal that asks it to end.
    ChildStubborn,
    /// A child leaves behind a process that outlives the child.
    ChildForks,
    /// An unsupervised workload checks only occasionally whether its candidate leads.
    WorkloadPolls,
    /// An operator raises the token, often during an acquisition.
    TokenRaised,
    /// A process is killed between two effects of a turn and starts again, with
    /// or without its directory.
    KilledInTurn,
    /// A child changed its user, so the kernel does not end the child with its guard.
    ChildUntied,
    /// Candidates write hints, and follow hints instead of a change stream.
    Hints,
    /// A hint is lost.
    HintLost,
    /// A hint is late, and may be repeated.
    HintLate,
    /// Hints are written although nothing has changed.
    HintFalse,
    /// The collection of hints is dropped for a while.
    HintsDropped,
    /// Candidates reach the store through routers. Streams then report changes up to ten seconds
    /// late, and no driver notices an election.
    Routers,
    /// A child, such as a process in uninterruptible sleep, survives SIGKILL for a while.
    ChildUnkillable,
    /// Guards and their daemons run in different containers.
    Contained,
    /// The container of a guard is killed, with its child.
    ContainerKilled,
    /// The container of a guard is frozen for a while, with its child.
    ContainerFrozen,
    /// The connection between a guard and its daemon breaks.
    ConnectionBroken,
    /// An older state is restored while an acquisition is in flight, and the acquisition lands on
    /// the restored state.
    RestoredUnder,
}

/// Separate generators draw and plan these faults, so that all other faults of a seed stay
/// unchanged.
const OTHERS: &[Fault] = &[
    Fault::WorkloadPolls,
    Fault::TokenRaised,
    Fault::KilledInTurn,
];

/// These faults affect only candidates that follow hints. A separate generator draws these faults
/// too.
const OF_HINTS: &[Fault] = &[
    Fault::Hints,
    Fault::HintLost,
    Fault::HintLate,
    Fault::HintFalse,
    Fault::HintsDropped,
];

const SUPERVISION: &[Fault] = &[
    Fault::Supervised,
    Fault::GuardFrozen,
    Fault::BothFrozen,
    Fault::GuardKilled,
    Fault::BothKilled,
    Fault::RecordsLate,
    Fault::ChildCrashes,
    Fault::ChildStubborn,
    Fault::ChildForks,
    Fault::ChildUntied,
    Fault::ChildUnkillable,
];

const CONTAINERS: &[Fault] = &[
    Fault::Contained,
    Fault::ContainerKilled,
    Fault::ContainerFrozen,
    Fault::ConnectionBroken,
];

pub(super) type Faults = crate::proof::sim::faults::Faults<Fault>;

impl Faults {
    /// Enables about two thirds of the faults. Faults that damage the store or fork a machine are
    /// rarer, because after these faults the checks tolerate violations that a bug could also
    /// cause.
    pub(super) fn drawn(rng: &mut Rng) -> Self {
        let mut faults = Self::NONE;
        for fault in Fault::ALL.iter() {
            let apart = &[Fault::Routers, Fault::RestoredUnder];
            let drawn_apart = [SUPERVISION, OTHERS, OF_HINTS, CONTAINERS, apart];
            if drawn_apart.iter().any(|apart| apart.contains(fault)) {
                continue;
            }
            let hit = match fault {
                Fault::Fork | Fault::Delete | Fault::Restore | Fault::EditRevision => rng.one_in(6),
                Fault::Foreign | Fault::EditDuration | Fault::NoStreams => rng.one_in(4),
                _ => !rng.one_in(3),
            };
            if hit {
                faults = faults.with(*fault);
            }
        }
        faults
    }

    /// Adds faults of supervised workloads to a third of all runs. A separate generator draws these
    /// faults, so that the other runs stay unchanged.
    pub(super) fn supervised(self, rng: &mut Rng) -> Self {
        let mut faults = self;
        let supervised = rng.one_in(3);
        for fault in SUPERVISION {
            let hit = *fault == Fault::Supervised || !rng.one_in(3);
            if supervised && hit {
                faults = faults.with(*fault);
            }
        }
        faults
    }

    pub(super) fn others(self, rng: &mut Rng) -> Self {
        let drawn = OTHERS.iter().filter(|_| !rng.one_in(3));
        drawn.fold(self, |faults, fault| faults.with(*fault))
    }

    /// Adds hints to two thirds of all runs, and to each of these runs about two thirds of the
    /// faults of hints.
    pub(super) fn hinted(self, seed: u64) -> Self {
        let mut rng = Rng::new(seed, 16);
        let hints = !rng.one_in(3);
        let drawn = OF_HINTS.iter().filter(|fault| {
            let hit = !rng.one_in(3) || **fault == Fault::Hints;
            hints && hit
        });
        drawn.fold(self, |faults, fault| faults.with(*fault))
    }

    /// Adds containers to two thirds of the runs with supervised workloads and without forks.
    pub(super) fn contained(self, seed: u64) -> Self {
        let mut rng = Rng::new(seed, 25);
        let contained = !rng.one_in(3) && self.has(Fault::Supervised) && !self.has(Fault::Fork);
        let drawn = CONTAINERS.iter().filter(|fault| {
            let hit = !rng.one_in(3) || **fault == Fault::Contained;
            contained && hit
        });
        drawn.fold(self, |faults, fault| faults.with(*fault))
    }

    pub(super) fn restored_under(self, seed: u64) -> Self {
        match Rng::new(seed, 20).one_in(6) {
            true => self.with(Fault::RestoredUnder),
            false => self,
        }
    }

    pub(super) fn routed(self, seed: u64) -> Self {
        match Rng::new(seed, 18).one_in(4) {
            true => self.with(Fault::Routers),
            false => self,
        }
    }
}

const WEIGHTS: &[(Fault, u64)] = &[
    (Fault::Freeze, 5),
    (Fault::Stall, 3),
    (Fault::Suspend, 2),
    (Fault::WallJump, 1),
    (Fault::Failover, 4),
    (Fault::Deposed, 3),
    (Fault::MajorityLost, 2),
    (Fault::Partition, 4),
    (Fault::StreamSilent, 2),
    (Fault::StreamDeaf, 3),
    (Fault::StreamLost, 2),
    (Fault::PrimaryChanged, 2),
    (Fault::Restart, 4),
    (Fault::RestartWiped, 2),
    (Fault::RestartCopied, 1),
    (Fault::CopiedAlive, 1),
    (Fault::Reboot, 1),
    (Fault::Replaced, 2),
    (Fault::Fork, 2),
    (Fault::Delete, 1),
    (Fault::Restore, 2),
    (Fault::Foreign, 1),
    (Fault::EditDuration, 1),
    (Fault::EditRevision, 1),
    (Fault::Pause, 2),
    (Fault::StepDownRequest, 3),
    (Fault::Transfer, 3),
    (Fault::StaleRequest, 1),
    (Fault::Signal, 2),
    (Fault::Shutdown, 3),
    (Fault::Reconfigure, 2),
    (Fault::DiskSlow, 2),
    (Fault::DiskFull, 2),
    (Fault::DiskReadOnly, 2),
    (Fault::DiskHangs, 2),
    (Fault::Unhealthy, 3),
];

const OF_GUARDS: &[(Fault, u64)] = &[
    (Fault::GuardFrozen, 1),
    (Fault::BothFrozen, 1),
    (Fault::GuardKilled, 1),
    (Fault::BothKilled, 1),
    (Fault::RecordsLate, 1),
];

pub(super) fn is_of_guard(fault: Fault) -> bool {
    OF_GUARDS.iter().any(|(of_guard, _)| *of_guard == fault)
}

const OF_CONTAINERS: &[(Fault, u64)] = &[
    (Fault::ContainerKilled, 1),
    (Fault::ContainerFrozen, 1),
    (Fault::ConnectionBroken, 2),
];

pub(super) fn is_of_container(fault: Fault) -> bool {
    CONTAINERS.contains(&fault)
}

/// Draws the plan of a run. The faults of guards and the planned faults of [`OTHERS`] come from
/// separate generators.
pub(super) fn plan_of(seed: u64, faults: Faults) -> Vec<Planned<Fault>> {
    let until = RUN - SECOND + 1;
    // Most faults happen alone. Some happen together, so that the run also covers combinations.
    let gap = |rng: &mut Rng, _| match rng.below(4) {
        0 => rng.between(1, 300) * MS,
        _ => rng.between(1_000, 12_000) * MS,
    };
    let mut all = plan(&mut Rng::new(seed, 2), faults, WEIGHTS, until, gap);
    let others = &[(Fault::TokenRaised, 1), (Fault::KilledInTurn, 1)];
    let of_hints = &[(Fault::HintFalse, 3), (Fault::HintsDropped, 1)];
    for (purpose, weights, longest) in [
        (11, OF_GUARDS, 60_000),
        (14, others, 45_000),
        (17, of_hints, 45_000),
        (27, OF_CONTAINERS, 40_000),
    ] {
        let gap = |rng: &mut Rng, _| rng.between(1_000, longest) * MS;
        let mut rng = Rng::new(seed, purpose);
        all.extend(plan(&mut rng, faults, weights, until, gap));
    }
    let supervised = faults.has(Fault::Supervised);
    let contained = faults.has(Fault::Contained);
    all.retain(|planned| supervised || !is_of_guard(planned.fault));
    all.retain(|planned| contained || !is_of_container(planned.fault));
    all
}
