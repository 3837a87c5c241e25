//! Goal: merging states with the same canonical form loses no behavior. Method: explore without
//! merging; states that share a form must have successors that share forms. A difference shows what
//! the form leaves out.

use std::collections::{BTreeSet, HashMap, VecDeque};

use crate::model::bounds::{Bounds, Requested};
use crate::model::cases::{APART, bounds};
use crate::model::properties::Exploration;
use crate::model::world::World;
use stateright::Model;

/// Number of states to explore, enough for thousands of forms that are reached several times.
const STATES: usize = 150_000;

fn forms_of_successors(exploration: &Exploration, world: &World) -> BTreeSet<u64> {
    let successors = exploration.next_states(world);
    successors.iter().map(World::canonical).collect()
}

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
    let mut successors: HashMap<u64, BTreeSet<u64>> = HashMap::new();
    let mut merged = 0;
    let mut rng = 0x9e37_79b9_7f4a_7c15_u64;
    let mut queue = VecDeque::from(exploration.init_states());
    for _ in 0..STATES {
        let Some(world) = queue.pop_front() else {
            break;
        };
        let forms = forms_of_successors(&exploration, &world);
        if let Some(known) = successors.get(&world.canonical()) {
            merged += 1;
            assert_eq!(*known, forms, "not the same after all: {world:#?}");
        } else {
            successors.insert(world.canonical(), forms);
        }
        // Continue with a few successors of each state, even if its form is known, so that long and
        // different runs reach the same form.
        let mut next = exploration.next_states(&world);
        for _ in 0..2 {
            if !next.is_empty() {
                rng = rng
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695);
                let index = usize::try_from(rng >> 33).unwrap_or(0) % next.len();
                queue.push_back(next.swap_remove(index));
            }
        }
    }
    merged
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
