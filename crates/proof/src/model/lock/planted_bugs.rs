//! Goal: if a rule of the locks is missing, the model finds a violation. Method: explore with each
//! planted bug until an invariant breaks. The results must match the table in
//! `docs/verification/planted-bugs.md`; `BLESS=1` writes the table.

use crate::lock::mutation::Mutation;
use crate::proof::model::lock::planted::planted;
use crate::proof::model::planted_bugs::{Searched, each_is_found};

#[test]
fn every_planted_bug_is_found_as_the_table_says() {
    let searched = planted().into_iter().map(|bug| Searched {
        name: format!("{:?}", bug.mutation),
        among: bug.among,
        figures: bug.explore(),
    });
    each_is_found("bugs planted in the model of the locks", searched);
}

/// Only the simulation finds these bugs. The model has no manual edits and no forked machines, and
/// the clock of its store is always right.
const ONLY_SIMULATED: &[Mutation] = &[
    Mutation::OverlookedWaits,
    Mutation::ConfirmedWithoutPause,
    Mutation::LeaveByClaim,
    Mutation::IdsOfGenerator,
    Mutation::FutureSuccessCounts,
];

#[test]
fn every_planted_bug_of_the_locks_is_looked_for() {
    let planted = planted();
    let modelled = |mutation: &&Mutation| !ONLY_SIMULATED.contains(mutation);
    for mutation in Mutation::ALL.iter().filter(modelled) {
        let mut bugs = planted.iter();
        assert!(bugs.any(|bug| bug.mutation == *mutation), "{mutation:?}");
    }
}
