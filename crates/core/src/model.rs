//! Every order of events, within bounds, of two or three candidates that run
//! the shipped election against a modelled store.
//!
//! What it does not do: it has no driver, no files and no seconds. Time is a
//! count of ticks on which each candidate's clock advances by its own amount;
//! `docs/verification.md` says where else it abstracts.
//!

mod action;
mod bounds;
mod canonical;
mod cases;
mod exploration;
mod machine;
mod monitor;
mod planted;
mod properties;
mod store;
mod world;

mod canonical_form;
mod exhaustive;
mod explore;
mod planted_bugs;
