//! What can go wrong, by name; each seed draws a subset, which finds more than
//! all of them at once.

use super::{MS, SECOND};
use crate::sim::dice::Dice;

faults! {
    /// A call takes up to 40 s.
    Slow,
    /// A call never reaches the store.
    LostBefore,
    /// A call is applied and its answer is lost.
    LostAfter,
    /// A call reaches the store twice, the second time late.
    Duplicate,
    /// A call is answered by an error although it lands, now or later.
    Late,
    /// The primary dies; what no majority has is lost, or kept by chance.
    Failover,
    /// The primary is deposed and goes on answering some clients for a while.
    Deposed,
    /// Nothing is acknowledged for a while.
    MajorityLost,
    /// A machine cannot reach the store.
    Partition,
    /// A process does not run for a while, often for longer than its lease.
    Freeze,
    /// A process is killed; another one starts later.
    Kill,
    /// Clocks run at different rates, within the ratio.
    Drift,
    /// A change stream breaks.
    StreamLost,
    /// A contender without the right to change streams.
    NoStreams,
    /// The driver tells of a new primary without need.
    PrimaryChanged,
    /// Contenders that give up waiting, or do not wait.
    Impatience,
    /// Contenders of different durations.
    MixedTimings,
    /// A contender that names another number of slots.
    WrongSlots,
}

impl Faults {
    /// What keeps a call from being answered soon.
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
    ];

    /// Half of them; one seed in four has a network and a store without fault,
    /// so that it can be said who must live and who must go.
    pub(super) fn drawn(dice: &mut Dice) -> Self {
        let reliable = dice.one_in(4);
        let mut faults = Self::NONE;
        for fault in Fault::ALL {
            let hit = dice.one_in(2);
            if hit && !(reliable && Self::NETWORK.contains(fault)) {
                faults = faults.with(*fault);
            }
        }
        faults
    }

    /// Whether every call is answered soon.
    pub(super) fn is_reliable(self) -> bool {
        !Self::NETWORK.iter().any(|fault| self.has(*fault))
    }
}

/// One trouble at one time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Planned {
    pub(super) at: u64,
    pub(super) fault: Fault,
    /// Decides the details.
    pub(super) chance: u64,
}

/// How often each kind comes, where it comes at instants of its own.
const WEIGHTS: &[(Fault, u64)] = &[
    (Fault::Failover, 4),
    (Fault::Deposed, 3),
    (Fault::MajorityLost, 2),
    (Fault::Partition, 4),
    (Fault::Freeze, 5),
    (Fault::Kill, 4),
    (Fault::StreamLost, 3),
    (Fault::PrimaryChanged, 2),
];

/// Troubles of a run, in order.
pub(super) fn plan(dice: &mut Dice, faults: Faults, until: u64) -> Vec<Planned> {
    let mut plan = Vec::new();
    let total: u64 = WEIGHTS.iter().map(|(_, weight)| weight).sum();
    let mut at = dice.between(1, 8) * SECOND;
    while at < until {
        let mut roll = dice.below(total);
        let chance = dice.roll();
        let drawn = WEIGHTS.iter().find(|(_, weight)| {
            let hit = roll < *weight;
            roll = roll.saturating_sub(*weight);
            hit
        });
        if let Some((fault, _)) = drawn.filter(|(fault, _)| faults.has(*fault)) {
            let fault = *fault;
            plan.push(Planned { at, fault, chance });
        }
        at += dice.between(200, 9_000) * MS;
    }
    plan
}
