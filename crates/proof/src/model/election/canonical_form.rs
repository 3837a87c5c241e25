//! Goal: the canonical form of a state omits nothing that affects behavior. The model skips a state
//! if an earlier state had the same form, so an omission would hide behavior. Method: explore
//! without merging, and require that the successors of states with equal forms have equal forms.

use crate::proof::model::election::bounds::{Bounds, Requested};
use crate::proof::model::election::cases::{APART, bounds};
use crate::proof::model::election::properties::Exploration;
use crate::proof::model::election::world::World;
use crate::proof::model::merging;

/// With this number of states, thousands of forms are reached more than once.
const STATES: usize = 150_000;

/// Returns the number of states whose form equals an earlier state's form.
fn merged(bounds: Bounds) -> usize {
    let exploration = Exploration {
        bounds,
        milestones: Vec::new(),
        planted: None,
    };
    merging::merged(&exploration, STATES, World::canonical)
}

#[test]
fn states_of_one_form_have_successors_of_the_same_forms() {
    let asked = &[Requested::Pauses, Requested::Transfers];
    for bounds in [
        bounds(&APART, 1, 0),
        bounds(&APART, 1, 1),
        bounds(&APART, 1, 1).with(asked),
        bounds(&APART, 1, 0).on_streams(),
        bounds(&APART, 1, 1).with_standby().with_hints(),
    ] {
        let merged = merged(bounds);
        assert!(merged > STATES / 10, "only {merged} were compared");
    }
}
