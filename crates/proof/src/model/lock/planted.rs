//! The planted bugs that the model finds, each with the exploration that finds it.

use std::time::Duration;

use crate::lock::LockMode::{Exclusive, Shared};
use crate::lock::mutation::Mutation;
use crate::proof::model::exploration::{Figures, explore};
use crate::proof::model::lock::bounds::{Bounds, Kind, Seat, slot};
use crate::proof::model::lock::cases::{FINE, REACHED_MAX, THREE, TWO, apart, three};
use crate::proof::model::lock::properties::Exploration;

#[derive(Debug, Clone)]
pub(crate) struct Planted {
    pub(crate) mutation: Mutation,
    pub(crate) among: &'static str,
    bounds: Bounds,
}

impl Planted {
    pub(crate) fn explore(&self) -> Figures {
        let exploration = Exploration::new(self.bounds.clone(), Some(self.mutation));
        explore(exploration, REACHED_MAX)
    }
}

/// Returns every planted bug of the locks that the model can detect. Each exploration is a part of
/// a case or a separate small exploration, and finds no violation without the bug.
pub(crate) fn planted() -> Vec<Planted> {
    let none = Bounds::of(&TWO, 0, 0);
    let one = |kinds| Bounds::of(&TWO, 1, 0).with(kinds);
    let (delay, duplicate) = (one(&[Kind::Delays]), one(&[Kind::Duplicates]));
    let (freeze, kill) = (one(&[Kind::Freezes]), one(&[Kind::Kills]));
    let (rollback, stale) = (one(&[Kind::Rollbacks]), one(&[Kind::StaleReads]));
    let readers = Bounds::of(&three([Shared, Exclusive, Shared]), 0, 0);
    let crowd = Bounds::of(&THREE, 0, 0);
    let slots = Bounds::of(&apart([slot(1), slot(2)]), 0, 0);
    let pair = Bounds::of(&apart([slot(2), slot(2)]), 0, 0);
    let short = Bounds::of(&FINE, 1, 0).idle(7).with(&[Kind::Delays]);
    let [a, b] = TWO;
    let brief = Seat {
        non_blocking: true,
        ..b
    };
    let once = Bounds::of(&TWO.map(Seat::once), 0, 0).on_streams();
    let once_delayed = Bounds::of(&TWO.map(Seat::once), 1, 0)
        .with(&[Kind::Delays])
        .on_streams();
    let stopped = once.clone().with_give_ups(1);
    let keeping = |seat: Seat| seat.keeping(Duration::from_secs(8));
    let kept = |faults, starts| Bounds::of(&TWO.map(keeping), faults, starts).idle(9);
    let jobs = Bounds::of(&[a, brief], 1, 1).with(&[Kind::Kills]);
    let bug = |mutation, among, bounds: &Bounds| Planted {
        mutation,
        among,
        bounds: bounds.clone(),
    };
    use Mutation::*;
    vec![
        bug(RenewalFromReply, "one delay, short ticks", &short),
        bug(UnknownGrants, "one delay", &delay),
        bug(GrantFromEvent, "no fault", &none),
        bug(AnchorAtReply, "one delay", &delay),
        bug(AnchorPerClaim, "one delay", &delay),
        bug(GrantWithoutRatio, "no fault", &none),
        bug(NeverConfirmed, "no fault", &none),
        bug(GrantAsFlag, "no fault, three contenders", &crowd),
        bug(RenewedAfterDeadline, "one delay", &delay),
        bug(UnknownAsFailed, "one delay", &delay),
        bug(RevisionKept, "no fault", &none),
        bug(JoinedAnew, "one delay", &delay),
        bug(ClaimReused, "one freeze", &freeze),
        bug(RejectionRepeated, "one freeze", &freeze),
        bug(PlainReadProvesAbsence, "one stale read", &stale),
        bug(LeaveBeforeWork, "one freeze", &freeze),
        bug(SightingAnew, "one kill", &kill),
        bug(NothingRemembered, "one kill, jobs that do not wait", &jobs),
        bug(LeaveBeforeLeastTime, "no fault, minimum holds", &kept(0, 0)),
        bug(
            GivenUpPlaceKept,
            "no fault, minimum holds, one gives up",
            &kept(0, 0).with_give_ups(1),
        ),
        bug(
            DeathEndsLeastTime,
            "one kill, minimum holds",
            &kept(1, 0).with(&[Kind::Kills]),
        ),
        bug(
            LeastTimeUndeclared,
            "one kill, minimum holds",
            &kept(1, 0).with(&[Kind::Kills]),
        ),
        bug(GrantWithoutSuccesses, "no fault, work once", &once),
        bug(ReleaseAssumed, "one delay, work once", &once_delayed),
        bug(
            AnyEndIsASuccess,
            "no fault, work once, one gives up",
            &stopped,
        ),
        bug(SweepWithoutRevision, "one freeze", &freeze),
        bug(NoGrantInLeave, "no fault", &none),
        bug(NoGrantInSweep, "one kill", &kill),
        bug(SharedOvertakes, "no fault, readers and a writer", &readers),
        bug(SlotsChanged, "no fault, other numbers of slots", &slots),
        bug(SlotTwice, "no fault, two slots", &pair),
        bug(TokenNotRaised, "no fault", &none),
        bug(JoinedTwice, "one duplicate", &duplicate),
        bug(WriteConcernOne, "one rollback", &rollback),
    ]
}
