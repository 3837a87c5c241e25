//! At any instant, authority belongs to at most one exclusive claim, or to any number of shared
//! claims, or to at most N claims with different slots.

use std::collections::BTreeSet;

use super::{Violation, explain};
use crate::lock::{LockMode, Slots};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) mode: LockMode,
    /// `None` if the lock has no slots, or if the process runs an older version.
    pub(crate) slot: Option<u32>,
}

pub(crate) fn check(held: &[Held]) -> Option<Violation> {
    let wants: Vec<LockMode> = held.iter().map(|held| held.mode).collect();
    let fits = match &wants[..] {
        [] | [_] => true,
        [LockMode::Exclusive, ..] => false,
        [first @ LockMode::Shared, rest @ ..] => rest.iter().all(|other| other == first),
        [first @ LockMode::Slot(slots), rest @ ..] => {
            rest.iter().all(|other| other == first)
                && u32::try_from(held.len()).is_ok_and(|held| held <= slots.get())
        }
    };
    let mut slots = BTreeSet::new();
    let own_slots = held.iter().all(|held| {
        let slot = held.slot.is_none_or(|slot| slots.insert(slot));
        slot && held.slot.is_none_or(|slot| slot < held.mode.slots())
    });
    explain(fits && own_slots, "exclusion", || {
        format!("all at once: {held:?}")
    })
}

/// Checks all processes with authority. A process is listed with the number of a fork if its
/// authority comes from a write before this fork. Of two twins with this number, only one counts.
pub(crate) fn check_twins(held: &[(Held, Option<usize>)]) -> Option<Violation> {
    let all: Vec<_> = held.iter().map(|(held, _)| *held).collect();
    let violation = check(&all)?;
    let excused = (0..held.len()).filter(|index| held[*index].1.is_some());
    let fits = |without: usize| {
        let mut rest = held.to_vec();
        let (_, fork) = rest.remove(without);
        for (_, other) in &mut rest {
            *other = other.filter(|other| Some(*other) != fork);
        }
        check_twins(&rest).is_none()
    };
    (!excused.into_iter().any(fits)).then_some(violation)
}

fn of(slots: u32) -> LockMode {
    LockMode::Slot(Slots::new(slots).expect("legal"))
}

fn each<const N: usize>(wants: [LockMode; N]) -> [Held; N] {
    wants.map(|mode| Held { mode, slot: None })
}

fn slots<const N: usize>(numbers: [u32; N]) -> [Held; N] {
    let held = |slot| Held {
        mode: of(3),
        slot: Some(slot),
    };
    numbers.map(held)
}

#[test]
fn compatible_holders_hold_together() {
    assert_eq!(check(&[]), None);
    assert_eq!(check(&each([LockMode::Exclusive])), None);
    assert_eq!(check(&each([LockMode::Shared; 5])), None);
    assert_eq!(check(&each([of(3); 3])), None);
    assert_eq!(check(&slots([2, 0, 1])), None);
}

#[test]
fn one_twin_of_each_fork_need_not_count() {
    let held = |forks: &[Option<usize>]| {
        let held = |fork: &Option<usize>| (each([LockMode::Exclusive])[0], *fork);
        check_twins(&forks.iter().map(held).collect::<Vec<_>>())
    };
    assert_eq!(held(&[Some(0), Some(0)]), None);
    assert_eq!(held(&[None, Some(0)]), None);
    assert_eq!(held(&[Some(0), Some(1), Some(0)]), None);
    assert!(held(&[None, None]).is_some());
    assert!(held(&[None, Some(0), Some(0)]).is_some());
    assert!(held(&[Some(0), Some(0), Some(0)]).is_some());
}

#[test]
fn others_are_found() {
    assert!(check(&each([LockMode::Exclusive; 2])).is_some());
    assert!(check(&each([LockMode::Shared, LockMode::Exclusive])).is_some());
    assert!(check(&each([of(3); 4])).is_some());
    assert!(check(&each([of(2), of(3)])).is_some());
    assert!(check(&each([of(2), LockMode::Shared])).is_some());
    assert!(check(&slots([1, 1])).is_some());
    assert!(check(&slots([0, 3])).is_some());
}
