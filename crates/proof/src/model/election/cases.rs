//! Explorations of `make test`, and the larger explorations of `make model`.

use crate::proof::model::election::bounds::{Bounds, Kind, Requested};
use crate::proof::model::election::monitor::Milestone::{self, *};
use crate::proof::model::election::properties::Exploration;
use crate::proof::model::exploration::{self, Figures, explore};
use crate::proof::model::pace::Pace;

#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) bounds: Bounds,
    /// Each of these milestones must occur in at least one run.
    pub(crate) milestones: &'static [Milestone],
    /// Number of states when the case was last changed.
    pub(crate) states_min: usize,
}

/// The clock rates are at the limit of the permitted ratio: the first candidate's clock is as slow,
/// and the other candidate's clock as fast, as the protocol permits.
pub(crate) const APART: [Pace; 2] = [Pace::of(750), Pace::of(1000)];
pub(crate) const THREE: [Pace; 3] = [Pace::of(750), Pace::of(1000), Pace::of(1000)];
/// An exploration stops at this number of states. Every case completes with fewer states.
pub(crate) const REACHED_MAX: usize = 400_000_000;

const UNKNOWN: &[Milestone] = &[
    HandOver,
    TakeOver,
    Adoption,
    RollBack,
    DeadlinePassed,
    Succession,
    LateExtension,
];

/// The candidates declare different lease durations, and their clock rates differ as much as these
/// durations permit. Candidate `a` has authority for 4 seconds of its own clock, and `b` waits for
/// 5 seconds of its own clock.
pub(crate) const DECLARED_APART: [Pace; 2] = [
    Pace {
        milliseconds_per_tick: 800,
        lease_seconds: 5,
        operation_milliseconds: 800,
    },
    Pace::of(1000),
];

pub(crate) fn bounds(candidates: &[Pace], faults: u8, requests: u8) -> Bounds {
    Bounds {
        candidates: candidates.to_vec(),
        faults,
        kinds: Kind::ALL_EXCEPT_DELETIONS,
        requests,
        requested: &[Requested::Signals],
        streams: false,
        hints: false,
        standby: false,
        prefer: false,
        quiet_ticks_max: 9,
    }
}

/// Returns the explorations of `make test`, which take two to three minutes on one core.
pub(crate) fn short() -> Vec<Case> {
    vec![
        Case {
            name: "two candidates, one fault of any kind, one request",
            bounds: bounds(&APART, 1, 1),
            milestones: UNKNOWN,
            states_min: 1_687_000,
        },
        Case {
            name: "two candidates on change streams, one fault of any kind",
            bounds: bounds(&APART, 1, 0).on_streams(),
            milestones: UNKNOWN,
            states_min: 206_100,
        },
        Case {
            name: "two candidates, a deletion and a delay or a crash, or two deletions",
            bounds: bounds(&APART, 2, 0).with_deletions(),
            milestones: &[StoreRolledBack, RenewalRejected, TakeOver],
            states_min: 2_504_000,
        },
        Case {
            name: "three candidates, one fault of any kind",
            bounds: bounds(&THREE, 1, 0),
            milestones: UNKNOWN,
            states_min: 2_399_000,
        },
        Case {
            name: "two candidates that declare different durations, one fault of any kind",
            bounds: bounds(&DECLARED_APART, 1, 0),
            milestones: UNKNOWN,
            states_min: 70_460,
        },
        Case {
            name: "two candidates, one fault of any kind, one pause",
            bounds: bounds(&APART, 1, 1).with(&[Requested::Pauses]),
            milestones: &[Paused, TakeOver, HandOver, RollBack],
            states_min: 2_168_000,
        },
        Case {
            name: "two candidates, one fault of any kind, one transfer",
            bounds: bounds(&APART, 1, 1).with(&[Requested::Transfers]),
            milestones: &[Transferred, TakeOver, HandOver, RollBack],
            states_min: 509_300,
        },
        Case {
            name: "two candidates on change streams, no fault, one pause",
            bounds: bounds(&APART, 0, 1).on_streams().with(&[Requested::Pauses]),
            milestones: &[Paused, HandOver],
            states_min: 168_900,
        },
        Case {
            name: "three candidates, no fault, one transfer",
            bounds: bounds(&THREE, 0, 1).with(&[Requested::Transfers]),
            milestones: &[Transferred],
            states_min: 91_470,
        },
        Case {
            name: "two candidates with a standby, no fault, one request",
            bounds: bounds(&APART, 0, 1).with_standby(),
            milestones: &[HandOver, Transferred],
            states_min: 9_950,
        },
        Case {
            name: "two candidates on change streams with a standby, one fault of any kind",
            bounds: bounds(&APART, 1, 0).on_streams().with_standby(),
            milestones: UNKNOWN,
            states_min: 372_900,
        },
        Case {
            name: "two candidates on change streams, one of them preferred, no fault",
            bounds: bounds(&APART, 0, 0).on_streams().with_preference(),
            milestones: &[Transferred],
            states_min: 4_530,
        },
        Case {
            name: "two candidates with hints, one of them preferred, one fault of any kind",
            bounds: bounds(&APART, 1, 0).with_preference().with_hints(),
            milestones: &[AcquiredUnread, TakeOver, HandOver, RollBack],
            states_min: 738_800,
        },
    ]
}

pub(crate) fn long() -> Vec<Case> {
    vec![
        Case {
            name: "two candidates, two faults of any kind",
            bounds: bounds(&APART, 2, 0),
            milestones: UNKNOWN,
            states_min: 9_359_000,
        },
        Case {
            name: "two candidates on change streams, one fault of any kind, one request",
            bounds: bounds(&APART, 1, 1).on_streams(),
            milestones: UNKNOWN,
            states_min: 7_283_000,
        },
        Case {
            name: "two candidates on change streams, one fault of any kind, one transfer",
            bounds: bounds(&APART, 1, 1)
                .on_streams()
                .with(&[Requested::Transfers]),
            milestones: &[Transferred, TakeOver, HandOver, RollBack],
            states_min: 4_788_000,
        },
        Case {
            name: "two candidates with hints and a standby, one fault of any kind, one request",
            bounds: bounds(&APART, 1, 1).with_standby().with_hints(),
            milestones: &[AcquiredUnread, TakeOver, HandOver, RollBack],
            states_min: 5_419_000,
        },
        Case {
            name: "two candidates with hints, two rollbacks, one transfer",
            bounds: Bounds {
                kinds: &[Kind::Rollbacks],
                ..bounds(&APART, 2, 1)
                    .with(&[Requested::Transfers])
                    .with_hints()
            },
            milestones: &[AcquiredUnread, Transferred, RollBack],
            states_min: 3_007_000,
        },
        Case {
            name: "two candidates with hints, one of them preferred, two rollbacks",
            bounds: Bounds {
                kinds: &[Kind::Rollbacks],
                ..bounds(&APART, 2, 0).with_preference().with_hints()
            },
            milestones: &[AcquiredUnread, RollBack],
            states_min: 4_445_000,
        },
    ]
}

impl exploration::Case for Case {
    fn name(&self) -> &'static str {
        self.name
    }

    fn states_min(&self) -> usize {
        self.states_min
    }

    fn explore(&self) -> Figures {
        let exploration = Exploration {
            bounds: self.bounds.clone(),
            milestones: self.milestones.to_vec(),
            planted: None,
        };
        explore(exploration, REACHED_MAX)
    }
}

/// Explores with clocks at these rates. If their ratio is not permitted, the exploration must find
/// two leaders.
pub(crate) fn beyond_the_ratio(rates: [u64; 2]) -> Figures {
    let exploration = Exploration {
        bounds: bounds(&rates.map(Pace::of), 1, 0),
        milestones: Vec::new(),
        planted: None,
    };
    explore(exploration, REACHED_MAX)
}
