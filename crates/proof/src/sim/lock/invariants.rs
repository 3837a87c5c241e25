//! Invariants that must hold after every step. Each file checks one topic with small pure
//! functions, and tests the functions on inputs written by hand.

pub(crate) mod authority_from_acknowledged_writes;
pub(crate) mod calls_are_paced;
pub(crate) mod documents;
pub(crate) mod evictions_are_due;
pub(crate) mod exclusion;
pub(crate) mod expired_entries_are_evicted;
pub(crate) mod healing;
pub(crate) mod live_entries_stay;
pub(crate) mod once_per;
pub(crate) mod own_writes;
pub(crate) mod places_are_kept;
pub(crate) mod releases_are_true;

pub(super) use crate::proof::sim::invariants::{Violation, explain, require, violation};
pub(super) use crate::proof::sim::with;
