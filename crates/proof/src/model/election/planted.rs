//! The planted bugs that the model finds, and the exploration that finds each.

use crate::election::mutation::Mutation;
use crate::proof::model::election::bounds::Bounds;
use crate::proof::model::election::cases::{APART, DECLARED_APART, REACHED_MAX, bounds};
use crate::proof::model::election::properties::Exploration;
use crate::proof::model::exploration::{Figures, explore};

#[derive(Debug, Clone)]
pub(crate) struct Planted {
    pub(crate) mutation: Mutation,
    pub(crate) among: &'static str,
    bounds: Bounds,
}

impl Planted {
    pub(crate) fn explore(&self) -> Figures {
        let exploration = Exploration {
            bounds: self.bounds.clone(),
            milestones: Vec::new(),
            planted: Some(self.mutation),
        };
        explore(exploration, REACHED_MAX)
    }
}

/// Returns every planted bug that the model can detect. Each exploration is one of the cases, or a
/// case with fewer faults or requests, and therefore passes without the bug.
pub(crate) fn planted() -> Vec<Planted> {
    let streams = bounds(&APART, 1, 0).on_streams();
    let polls = bounds(&APART, 1, 0);
    let signals = bounds(&APART, 1, 1);
    let declared = bounds(&DECLARED_APART, 1, 0);
    let deletions = bounds(&APART, 2, 0).with_deletions();
    let one = |mutation, among, bounds: &Bounds| Planted {
        mutation,
        among,
        bounds: bounds.clone(),
    };
    use Mutation::*;
    let faulty = "one fault, streams";
    vec![
        one(AcquisitionFromReply, faulty, &streams),
        one(RenewalFromReply, faulty, &streams),
        one(UnknownAsApplied, faulty, &streams),
        one(AdoptedWithoutRenewal, faulty, &streams),
        one(TokenCompared, faulty, &streams),
        one(RevisionKept, faulty, &streams),
        one(SeenCountsAgain, "one fault, polls", &polls),
        one(EventAsAuthority, faulty, &streams),
        one(NoRevisionChain, "one fault, polls", &polls),
        one(OwnDuration, "one fault, different durations", &declared),
        one(RenewedAfterRelease, "one fault, a signal", &signals),
        one(HighestTokenForgotten, "two deletions", &deletions),
    ]
}
