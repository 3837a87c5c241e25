use crate::proof::sim::faults::{Kind as _, Planned, faults, plan};
use crate::proof::sim::rng::Rng;
use crate::proof::sim::{MS, SECOND};

pub(super) const RUN: u64 = 240 * SECOND;

faults! {
    of calls,
    /// The primary fails; a random part of the writes that are not majority-committed is lost.
    Failover,
    /// The primary is deposed and keeps answering some clients for a while.
    Deposed,
    /// No write is acknowledged for a while.
    MajorityLost,
    /// A machine cannot reach the store.
    Partition,
    /// A process does not run for a while, often for longer than its lease.
    Freeze,
    /// A process is killed; later another process starts.
    Kill,
    /// Clocks run at different rates, within the permitted ratio.
    Drift,
    /// A change stream breaks.
    StreamLost,
    /// Events of a change stream arrive late.
    StreamLag,
    /// Some contenders run an older version, whose grants carry no tokens.
    OlderVersion,
    /// A contender is not permitted to open change streams.
    NoStreams,
    /// The driver reports a new primary although the primary has not changed.
    PrimaryChanged,
    /// Contenders give up waiting, or do not wait.
    Impatience,
    /// Contenders have different timings, such as lease durations.
    MixedTimings,
    /// Some contenders have a minimum hold.
    LeastTime,
    /// Some contenders skip work that succeeded recently.
    OncePer,
    /// A contender requests a different number of slots.
    WrongSlots,
    /// An operator kills the processes that hold the lock and removes their entries, or adds a
    /// holder although no slot is free.
    Edited,
    /// A running machine is cloned, including its process and its random generator.
    Fork,
    /// The clock of the store is ahead for a while.
    ClockAhead,
}

pub(super) type Faults = crate::proof::sim::faults::Faults<Fault>;

impl Faults {
    const NETWORK: &[Fault] = &[
        Fault::Slow,
        Fault::LostBefore,
        Fault::LostAfter,
        Fault::Duplicate,
        Fault::Late,
        Fault::Failover,
        Fault::Deposed,
        Fault::MajorityLost,
        Fault::Partition,
        Fault::StreamLag,
    ];

    /// Enables each fault with a probability of one half. One seed in four has no faults of the
    /// network or the store, so that the checks know exactly which entries must stay and which
    /// must be evicted.
    pub(super) fn drawn(rng: &mut Rng) -> Self {
        let reliable = rng.one_in(4);
        let mut faults = Self::NONE;
        for fault in Fault::ALL {
            let hit = rng.one_in(2);
            if hit && !(reliable && Self::NETWORK.contains(fault)) {
                faults = faults.with(*fault);
            }
        }
        faults
    }

    pub(super) fn is_reliable(self) -> bool {
        !Self::NETWORK.iter().any(|fault| self.has(*fault))
    }
}

const WEIGHTS: &[(Fault, u64)] = &[
    (Fault::Failover, 4),
    (Fault::Deposed, 3),
    (Fault::MajorityLost, 2),
    (Fault::Partition, 4),
    (Fault::Freeze, 5),
    (Fault::Kill, 4),
    (Fault::StreamLost, 3),
    (Fault::PrimaryChanged, 2),
    (Fault::Edited, 2),
    (Fault::Fork, 2),
];

pub(super) fn plan_of(seed: u64, faults: Faults) -> Vec<Planned<Fault>> {
    plan(
        &mut Rng::new(seed, 12),
        faults,
        WEIGHTS,
        RUN,
        |rng, at| match at {
            0 => rng.between(1, 8) * SECOND,
            _ => rng.between(200, 9_000) * MS,
        },
    )
}
