//! Goal: the canonical form of a state omits nothing that affects behavior. The model skips a state
//! if an earlier state had the same form, so an omission would hide behavior. Method: explore
//! without merging, and require that the successors of states with equal forms have equal forms.

use crate::lock::LockMode::{Exclusive, Shared};
use crate::proof::model::lock::bounds::{Bounds, slot};
use crate::proof::model::lock::cases::{THREE, TWO, apart, grants};
use crate::proof::model::lock::properties::Exploration;
use crate::proof::model::lock::world::World;
use crate::proof::model::merging;

/// With this number of states, thousands of forms are reached more than once.
const STATES: usize = 12_000;

#[test]
fn states_of_one_form_have_successors_of_the_same_forms() {
    let bounds = [
        Bounds::of(&TWO, 1, 0),
        Bounds::of(&TWO, 1, 1).on_streams(),
        Bounds::of(&THREE, 0, 0).with_give_ups(1),
        Bounds::of(&apart([Shared, Exclusive]), 1, 0),
        Bounds::of(&apart([slot(1); 2]), 1, 0).without_a_document(),
        grants(1),
    ];
    for bounds in bounds {
        let exploration = Exploration::new(bounds, None);
        let merged = merging::merged(&exploration, STATES, World::canonical);
        assert!(merged > STATES / 30, "only {merged} were compared");
    }
}
