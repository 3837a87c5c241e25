//! The runs of contenders over many seeds. `make soak-locks` and `make replay-locks` also start
//! them.

use super::world::Locks;
use crate::lock::mutation::Mutation;
use crate::proof::sim::minimal;
use crate::proof::sim::planted::each_is_caught;
use crate::proof::sim::run::{self, Setup, simulation};

simulation!(Locks);

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
