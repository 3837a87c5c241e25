//! At any instant, one exclusive claim has authority, or any number of shared ones, or at most N of
//! N slots.

use super::{Violation, explain};
use crate::lock::{Slots, Want};

/// Checks the requests of all processes that have authority at one instant.
pub(crate) fn check(held: &[Want]) -> Option<Violation> {
    let fits = match held {
        [] | [_] => true,
        [Want::Exclusive, ..] => false,
        [first @ Want::Shared, rest @ ..] => rest.iter().all(|other| other == first),
        [first @ Want::Slot(slots), rest @ ..] => {
            rest.iter().all(|other| other == first)
                && u32::try_from(held.len()).is_ok_and(|held| held <= slots.get())
        }
    };
    explain(fits, "exclusion", || format!("all at once: {held:?}"))
}

fn slot(number: u32) -> Want {
    Want::Slot(Slots::new(number).expect("legal"))
}

#[test]
fn compatible_holders_hold_together() {
    assert_eq!(check(&[]), None);
    assert_eq!(check(&[Want::Exclusive]), None);
    assert_eq!(check(&[Want::Shared; 5]), None);
    assert_eq!(check(&[slot(3); 3]), None);
}

#[test]
fn others_are_found() {
    assert!(check(&[Want::Exclusive; 2]).is_some());
    assert!(check(&[Want::Shared, Want::Exclusive]).is_some());
    assert!(check(&[slot(3); 4]).is_some());
    assert!(check(&[slot(2), slot(3)]).is_some());
    assert!(check(&[slot(2), Want::Shared]).is_some());
}
