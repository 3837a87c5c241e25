//! The model of candidates that run the shipped election.

mod action;
mod bounds;
pub(super) mod cases;
mod machine;
mod monitor;
mod planted;
mod properties;
mod store;
mod world;

mod canonical_form;
mod exhaustive;
mod planted_bugs;
