//! Every order of events, within bounds, of two or three candidates that run
//! the shipped election against a modelled store.
//!
//! What it does not do: it has no driver, no files and no seconds. Time is a
//! count of ticks on which each candidate's clock advances by its own amount;
//! `docs/verification.md` says where else it abstracts.
//!
//! The election is compiled from the shipped sources (`election.rs` and
//! `election/` are links to them), not copied: a crate of its own lets the checker and the election be optimised without slowing
//! every other build down.

pub mod action;
pub mod bounds;
pub mod canonical;
pub mod cases;
pub mod election;
pub mod exploration;
pub mod machine;
pub mod monitor;
pub mod planted;
pub mod properties;
pub mod store;
pub mod world;
