//! Invariants that must hold after every step. Each file has one small pure function, with tests on
//! hand-made views.

pub(super) mod authority_from_acknowledged_writes;
pub(super) mod documents;
pub(super) mod evictions_are_due;
pub(super) mod exclusion;
pub(super) mod expired_entries_are_evicted;
pub(super) mod healing;
pub(super) mod live_entries_stay;
pub(super) mod own_writes;

pub(super) use crate::sim::invariants::{Violation, explain, require, violation};
pub(super) use crate::sim::with;
