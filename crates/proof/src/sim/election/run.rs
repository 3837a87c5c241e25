//! The runs of candidates over many seeds. `make soak` and `make replay` also start them.

use super::cluster::Leases;
use crate::election::mutation::Mutation;
use crate::proof::sim::minimal;
use crate::proof::sim::planted::each_is_caught;
use crate::proof::sim::run::{self, Setup, simulation};
use crate::proof::sim::world::Protocol as _;

simulation!(Leases);

#[test]
fn i1_breaks_when_clock_rates_differ_too_much_so_the_check_works() {
    run::breaks_beyond_the_ratio::<Leases>("I1", 200);
}

#[test]
fn the_smallest_run_still_breaks_the_same_invariant_with_less() {
    minimal::still_breaks::<Leases>(Mutation::TokenCompared);
}

#[test]
fn every_planted_bug_is_caught_as_the_table_says() {
    each_is_caught("planted bugs", |mutation, seed| {
        let setup = Setup::new(seed);
        let ran = run::run::<Leases>(&setup);
        let clock = matches!(mutation, Mutation::WallClock | Mutation::ServerClock);
        match ran.violation {
            None if clock => Leases::run_again(&setup, &ran),
            found => found,
        }
    });
}
