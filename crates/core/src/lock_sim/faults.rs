//! Faults by name. Each seed draws a subset, which finds more than all of them together.

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
    /// A call is answered with an error although it lands, now or later.
    Late,
    /// The primary fails; writes that no majority has are lost, or kept at random.
    Failover,
    /// The primary is deposed and keeps answering some clients for a while.
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
    /// A contender is not permitted to open change streams.
    NoStreams,
    /// The driver reports a new primary although there is none.
    PrimaryChanged,
    /// Contenders give up waiting, or do not wait.
    Impatience,
    /// Contenders have different durations.
    MixedTimings,
    /// A contender gives a different number of slots.
    WrongSlots,
}

impl Faults {
    /// Faults that keep a call from being answered soon.
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

    /// Draws each fault with a probability of one half. One seed in four has a network and a store
    /// without faults, so that the checks know which entries must stay and which must be evicted.
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

    /// Returns true if every call is answered soon.
    pub(super) fn is_reliable(self) -> bool {
        !Self::NETWORK.iter().any(|fault| self.has(*fault))
    }
}

/// A fault that is planned for one instant.
#[derive(Debug, Clone, Copy)]
pub(super) struct Planned {
    pub(super) at: u64,
    pub(super) fault: Fault,
    /// Random number that decides the details.
    pub(super) chance: u64,
}

/// Relative frequency of the faults that are planned for an instant.
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

/// Returns the faults of a run in chronological order.
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
