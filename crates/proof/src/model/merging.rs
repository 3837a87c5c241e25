use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt::Debug;

use stateright::Model;

fn forms_of_successors<M: Model>(
    model: &M,
    state: &M::State,
    form: impl Fn(&M::State) -> u64,
) -> BTreeSet<u64> {
    model.next_states(state).iter().map(form).collect()
}

/// Explores `states` states without merging. Returns how many states had the form of an earlier
/// state. Fails if states with equal forms have successors with different forms.
pub(super) fn merged<M: Model>(
    model: &M,
    states: usize,
    form: impl Fn(&M::State) -> u64 + Copy,
) -> usize
where
    M::State: Debug,
{
    let mut successors: HashMap<u64, BTreeSet<u64>> = HashMap::new();
    let mut merged = 0;
    let mut rng = 0x9e37_79b9_7f4a_7c15_u64;
    let mut queue = VecDeque::from(model.init_states());
    for _ in 0..states {
        let Some(world) = queue.pop_front() else {
            break;
        };
        let forms = forms_of_successors(model, &world, form);
        if let Some(known) = successors.get(&form(&world)) {
            merged += 1;
            assert_eq!(*known, forms, "different successors of {world:#?}");
        } else {
            successors.insert(form(&world), forms);
        }
        // Follow a few successors of each state even if their forms are known, so that some long
        // runs reach equal forms on different paths.
        let mut next = model.next_states(&world);
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
