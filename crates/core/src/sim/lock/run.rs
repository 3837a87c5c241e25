//! The runs of contenders, over many seeds. `make soak-locks` and `make replay-locks` start them too.

use super::world::Locks;
use crate::lock::mutation::Mutation;
use crate::sim::minimal;
use crate::sim::planted::each_is_caught;
use crate::sim::run::{self, Setup};

#[test]
fn all_invariants_hold_whatever_happens_within_the_ratio() {
    run::every_seed::<Locks>();
}

#[test]
fn soak() {
    run::soak::<Locks>();
}

#[test]
fn replay() {
    run::replay::<Locks>();
}

#[test]
fn survey() {
    run::survey::<Locks>();
}

#[test]
fn a_run_is_decided_by_its_seed() {
    run::same_seed_same_run::<Locks>();
}

#[test]
fn exclusion_breaks_when_clock_rates_differ_too_much_so_the_check_works() {
    run::breaks_beyond_the_ratio::<Locks>("exclusion", 300);
}

#[test]
fn the_smallest_run_still_breaks_the_same_invariant_with_less() {
    minimal::still_breaks::<Locks>(Mutation::RenewalFromReply);
}

#[test]
fn every_planted_bug_is_caught_as_the_table_says() {
    each_is_caught("planted bugs of the locks", |_: Mutation, seed| {
        run::run::<Locks>(&Setup::new(seed)).violation
    });
}
