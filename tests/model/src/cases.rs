//! The explorations of `make test` and the larger ones of `make model`.

use crate::bounds::{Bounds, Kinds};
use crate::exploration::{Figures, Limit, explore};
use crate::monitor::Milestone::{self, *};

/// A named exploration.
#[derive(Debug, Clone)]
pub struct Case {
    /// What it covers.
    pub name: &'static str,
    /// Its bounds.
    pub bounds: Bounds,
    /// What some run must reach.
    pub milestones: &'static [Milestone],
    /// What was counted when it was last changed: a model that does less than
    /// it seems to is noticed by this.
    pub states_min: usize,
}

/// The holder's clock at the slow end of the ratio, the contender's at the other.
const APART: [u64; 2] = [750, 1000];
/// No exploration that is meant to end reaches more.
const REACHED_MAX: usize = 400_000_000;

const DELETIONS: Kinds = Kinds {
    delays: true,
    crashes: true,
    deletions: true,
    ..Kinds::NONE
};

const UNKNOWN: &[Milestone] = &[
    HandOver,
    TakeOver,
    Adoption,
    RollBack,
    DeadlinePassed,
    Succession,
    LateExtension,
];

fn bounds(rates: &[u64], faults: u8, requests: u8) -> Bounds {
    Bounds {
        milliseconds_per_tick: rates.to_vec(),
        faults,
        kinds: Kinds::ALL,
        requests,
        streams: false,
        quiet_ticks_max: 9,
    }
}

/// Two to three minutes on one core.
pub fn short() -> Vec<Case> {
    vec![
        Case {
            name: "two candidates, one fault of any kind, one request",
            bounds: bounds(&APART, 1, 1),
            milestones: UNKNOWN,
            states_min: 1_400_000,
        },
        Case {
            name: "two candidates on change streams, one fault of any kind",
            bounds: Bounds {
                streams: true,
                ..bounds(&APART, 1, 0)
            },
            milestones: UNKNOWN,
            states_min: 54_000,
        },
        Case {
            name: "two candidates, a deletion and a delay or a crash, or two deletions",
            bounds: Bounds {
                kinds: DELETIONS,
                quiet_ticks_max: 12,
                ..bounds(&APART, 2, 0)
            },
            milestones: &[StoreWentBack, RenewalRejected, TakeOver],
            states_min: 1_500_000,
        },
        Case {
            name: "three candidates, one fault of any kind",
            bounds: bounds(&[750, 1000, 1000], 1, 0),
            milestones: UNKNOWN,
            states_min: 1_400_000,
        },
    ]
}

/// What `make model` adds.
pub fn long() -> Vec<Case> {
    vec![
        Case {
            name: "two candidates, two faults of any kind",
            bounds: bounds(&APART, 2, 0),
            milestones: UNKNOWN,
            states_min: 7_000_000,
        },
        Case {
            name: "two candidates on change streams, one fault of any kind, one request",
            bounds: Bounds {
                streams: true,
                ..bounds(&APART, 1, 1)
            },
            milestones: UNKNOWN,
            states_min: 2_400_000,
        },
    ]
}

impl Case {
    /// Explores all of it.
    pub fn explore(&self) -> Figures {
        let limit = Limit {
            depth: None,
            reached: REACHED_MAX,
        };
        explore(self.bounds.clone(), self.milestones.to_vec(), limit)
    }

    /// Why the figures are not what they must be; `None` if they are.
    pub fn complaint(&self, figures: &Figures) -> Option<String> {
        let good = figures.complete && figures.missed.is_empty();
        (!good || figures.unique < self.states_min).then(|| format!("{}: {figures}", self.name))
    }
}

/// Two leaders must be found where the clocks' rates are `rates` apart.
pub fn beyond_the_ratio(rates: [u64; 2]) -> Figures {
    let limit = Limit {
        depth: None,
        reached: REACHED_MAX,
    };
    explore(bounds(&rates, 1, 0), Vec::new(), limit)
}
