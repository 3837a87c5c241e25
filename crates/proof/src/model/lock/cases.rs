//! Explorations of `make test`, and the larger explorations of `make model`.

use std::time::Duration;

use crate::lock::LockMode::{self, Exclusive, Shared};
use crate::proof::model::exploration::{self, Figures, explore};
use crate::proof::model::lock::bounds::{Bounds, Kind, Seat, slot};
use crate::proof::model::lock::properties::Exploration;
use crate::proof::model::lock::properties::Milestone::{self, *};

#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) bounds: Bounds,
    /// Each of these milestones must occur in at least one run.
    pub(crate) milestones: &'static [Milestone],
    /// Number of states when the case was last changed.
    pub(crate) states_min: usize,
}

/// An exploration stops at this number of states. Every case completes with fewer states.
pub(crate) const REACHED_MAX: usize = 400_000_000;

/// The clock rates are at the limit of the permitted ratio, and the first clock is slower. The
/// first contender has authority for two ticks of its clock, and the second waits for two ticks of
/// its own clock.
pub(crate) const fn apart(wants: [LockMode; 2]) -> [Seat; 2] {
    [Seat::of(1500, wants[0]), Seat::of(2000, wants[1])]
}

pub(crate) const fn three(wants: [LockMode; 3]) -> [Seat; 3] {
    [
        Seat::of(1500, wants[0]),
        Seat::of(2000, wants[1]),
        Seat::of(2000, wants[2]),
    ]
}

pub(crate) const TWO: [Seat; 2] = apart([Exclusive; 2]);
pub(crate) const THREE: [Seat; 3] = three([Exclusive; 3]);
/// Two contenders with ticks of half the usual length.
pub(crate) const FINE: [Seat; 2] = [Seat::of(750, Exclusive), Seat::of(1000, Exclusive)];

/// Two contenders. The first contender has a minimum hold of twice the lease duration.
pub(crate) fn keeping() -> [Seat; 2] {
    [TWO[0].keeping(LEAST_TIME), TWO[1]]
}
pub(crate) const LEAST_TIME: Duration = Duration::from_secs(8);

/// Two contenders whose provisional authority lasts five ticks.
pub(crate) const GRANTS: [Seat; 2] = [
    Seat::of_grants(75, Exclusive),
    Seat::of_grants(100, Exclusive),
];
/// Ticks are short in these explorations, so the permitted idle time has more ticks than in the
/// other cases.
const GRANTS_IDLE_MAX: u8 = 60;

const FAULTY: &[Milestone] = &[
    Joined,
    Confirmed,
    TakenOver,
    LateAcquisition,
    HolderSwept,
    GranteeSwept,
    WaiterSwept,
    PlaceLost,
    DeadlinePassed,
    RenewalRejected,
    RollBack,
    JoinWithoutOwner,
];
const ON_STREAMS: &[Milestone] = &[
    Joined,
    Confirmed,
    TakenOver,
    LateAcquisition,
    HolderSwept,
    GranteeSwept,
    WaiterSwept,
    PlaceLost,
    DeadlinePassed,
    RenewalRejected,
    RollBack,
    JoinWithoutOwner,
    LateEvent,
    StreamEnded,
];
const POLITE: &[Milestone] = &[Joined, Confirmed, GranteeSwept, PlaceLost];

pub(crate) fn grants(faults: u8) -> Bounds {
    Bounds::of(&GRANTS, faults, 0)
        .idle(GRANTS_IDLE_MAX)
        .on_streams()
}

/// Returns the explorations of `make test`, which take less than 20 s on one core.
pub(crate) fn short() -> Vec<Case> {
    vec![
        Case {
            name: "locks: two contenders, one fault of any kind",
            bounds: Bounds::of(&TWO, 1, 0),
            milestones: FAULTY,
            states_min: 130_100,
        },
        Case {
            name: "locks: two contenders on change streams, one fault of any kind",
            bounds: Bounds::of(&TWO, 1, 0).on_streams(),
            milestones: ON_STREAMS,
            states_min: 172_600,
        },
        Case {
            name: "locks: three contenders, no fault",
            bounds: Bounds::of(&THREE, 0, 0),
            milestones: POLITE,
            states_min: 157_000,
        },
        Case {
            name: "locks: a reader and a writer, one fault of any kind",
            bounds: Bounds::of(&apart([Shared, Exclusive]), 1, 0),
            milestones: FAULTY,
            states_min: 130_200,
        },
        Case {
            name: "locks: two readers, one fault of any kind",
            bounds: Bounds::of(&apart([Shared; 2]), 1, 0),
            milestones: &[Joined, Together, LateAcquisition, HolderSwept, RollBack],
            states_min: 94_750,
        },
        Case {
            name: "locks: minimum holds, two contenders, one kill",
            bounds: Bounds::of(&keeping(), 1, 0).with(&[Kind::Kills]).idle(9),
            milestones: &[Joined, Confirmed, TakenOver, KeptPlaceSwept],
            states_min: 8_150,
        },
        Case {
            name: "locks: work once, two contenders on change streams, one delay",
            bounds: Bounds::of(&TWO.map(Seat::once), 1, 0)
                .with(&[Kind::Delays])
                .on_streams(),
            milestones: &[Joined, Confirmed, Skipped],
            states_min: 54_870,
        },
        Case {
            name: "locks: grants, two contenders on change streams, no fault",
            bounds: grants(0),
            milestones: &[Joined, HeldByGrant, Confirmed],
            states_min: 2_440,
        },
        Case {
            name: "locks: grants, two contenders on change streams, one delay",
            bounds: grants(1).with(&[Kind::Delays]),
            milestones: &[Joined, HeldByGrant, Confirmed, LateEvent],
            states_min: 223_000,
        },
        Case {
            name: "locks: grants, two contenders on change streams, one duplicate",
            bounds: grants(1).with(&[Kind::Duplicates]),
            milestones: &[Joined, HeldByGrant, Confirmed],
            states_min: 139_100,
        },
        Case {
            name: "locks: two contenders without a document, one is asked to give up, no fault",
            bounds: Bounds::of(&TWO, 0, 0).without_a_document().with_give_ups(1),
            milestones: &[Joined, Confirmed],
            states_min: 2_370,
        },
    ]
}

pub(crate) fn long() -> Vec<Case> {
    vec![
        Case {
            name: "locks: three contenders on change streams, no fault",
            bounds: Bounds::of(&THREE, 0, 0).on_streams(),
            milestones: &[Joined, Confirmed],
            states_min: 210_500,
        },
        Case {
            name: "locks: two readers and a writer, no fault",
            bounds: Bounds::of(&three([Shared, Exclusive, Shared]), 0, 0),
            milestones: &[Joined, Confirmed, Together, GranteeSwept, PlaceLost],
            states_min: 158_100,
        },
        Case {
            name: "locks: three contenders for two slots, no fault",
            bounds: Bounds::of(&three([slot(2); 3]), 0, 0),
            milestones: &[Joined, Confirmed, Together, GranteeSwept, PlaceLost],
            states_min: 197_900,
        },
        Case {
            name: "locks: two contenders, one fault of any kind, one is asked to give up",
            bounds: Bounds::of(&TWO, 1, 0).with_give_ups(1),
            milestones: FAULTY,
            states_min: 548_900,
        },
        Case {
            name: "locks: two contenders, one fault of any kind, one further job",
            bounds: Bounds::of(&TWO, 1, 1),
            milestones: FAULTY,
            states_min: 1_719_000,
        },
        Case {
            name: "locks: grants, two contenders on change streams, one freeze",
            bounds: grants(1).with(&[Kind::Freezes]),
            milestones: &[Joined, HeldByGrant, Confirmed, GranteeSwept],
            states_min: 1_728_000,
        },
        Case {
            name: "locks: two contenders in short ticks, one fault of any kind",
            bounds: Bounds::of(&FINE, 1, 0).idle(7),
            milestones: FAULTY,
            states_min: 228_800,
        },
        Case {
            name: "locks: two contenders in short ticks on change streams, one fault of any kind",
            bounds: Bounds::of(&FINE, 1, 0).idle(7).on_streams(),
            milestones: ON_STREAMS,
            states_min: 296_100,
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
        let exploration = Exploration::new(self.bounds.clone(), None);
        let mut figures = explore(exploration.clone(), REACHED_MAX);
        let milestones = self.milestones.iter();
        let missed = milestones.filter(|milestone| !exploration.has_reached(**milestone));
        figures.missed = missed.map(|milestone| format!("{milestone:?}")).collect();
        figures
    }
}

/// Explores with clock rates beyond the permitted ratio. The exploration must find two holders.
pub(crate) fn beyond_the_ratio(seats: [Seat; 2]) -> Figures {
    let bounds = Bounds::of(&seats, 1, 0).with(&[Kind::Freezes]);
    explore(
        Exploration::new(bounds.idle(GRANTS_IDLE_MAX).on_streams(), None),
        REACHED_MAX,
    )
}
