//! What must hold after every step: one small pure function a file, with
//! tests of its own on views made by hand.

pub(super) mod authority_from_acknowledged_writes;
pub(super) mod documents;
pub(super) mod exclusion;
pub(super) mod healing;
pub(super) mod own_writes;
pub(super) mod sweeps;
pub(super) mod the_dead_go;
pub(super) mod the_living_stay;
