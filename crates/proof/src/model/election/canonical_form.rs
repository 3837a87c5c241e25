//! Goal: merging states with the same canonical form loses no behavior. Method: explore without
//! merging; the successors of states with equal forms must have equal forms. A difference reveals
//! relevant state that the form omits.

use crate::proof::model::election::bounds::{Bounds, Requested};
use crate::proof::model::election::cases::{APART, bounds};
use crate::proof::model::election::properties::Exploration;
use crate::proof::model::election::world::World;
use crate::proof::model::merging;

/// Number of states to explore, enough for thousands of forms that are reached several times.
const STATES: usize = 150_000;

/// Returns the number of states whose form was reached before.
fn merged(streams: bool, requests: u8, requested: &'static [Requested]) -> usize {
    let exploration = Exploration {
        bounds: Bounds {
            requested,
            streams,
            ..bounds(&APART, 1, requests)
        },
        milestones: Vec::new(),
        planted: None,
    };
    merging::merged(&exploration, STATES, World::canonical)
}

#[test]
fn states_of_one_form_have_successors_of_the_same_forms() {
    let cases: [(bool, u8, &[Requested]); 4] = [
        (false, 0, &[]),
        (false, 1, &[Requested::Signals]),
        (false, 1, &[Requested::Pauses, Requested::Transfers]),
        (true, 0, &[]),
    ];
    for (streams, requests, requested) in cases {
        let merged = merged(streams, requests, requested);
        assert!(merged > STATES / 10, "only {merged} were compared");
    }
}
