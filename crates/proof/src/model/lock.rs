//! The model of contenders that run the shipped lock protocol.

mod action;
mod bounds;
mod canonical;
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
