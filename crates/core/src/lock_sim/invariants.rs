//! Invariants that must hold after every step. Each file has one small pure function, with tests on
//! hand-made views.

pub(super) mod authority_from_acknowledged_writes;
pub(super) mod documents;
pub(super) mod exclusion;
pub(super) mod healing;
pub(super) mod own_writes;
pub(super) mod sweeps;
pub(super) mod the_dead_go;
pub(super) mod the_living_stay;
