//! The runs of candidates, over many seeds. `make soak` and `make replay` start them too.

use super::cluster::Leases;
use crate::election::mutation::Mutation;
use crate::sim::minimal;
use crate::sim::planted::each_is_caught;
use crate::sim::run::{self, Setup};
use crate::sim::world::Protocol as _;

#[test]
fn all_invariants_hold_whatever_happens_within_the_ratio() {
    run::every_seed::<Leases>();
}

#[test]
fn soak() {
    run::soak::<Leases>();
}

#[test]
fn replay() {
    run::replay::<Leases>();
}

#[test]
fn survey() {
    run::survey::<Leases>();
}

#[test]
fn a_run_is_decided_by_its_seed() {
    run::same_seed_same_run::<Leases>();
}

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
