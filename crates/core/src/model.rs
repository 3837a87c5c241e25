//! Explores every order of events, within bounds, of two or three candidates that run the shipped
//! election against a modelled store.
//!
//! The model has no driver, no files and no seconds. Time is a count of ticks, in which each
//! candidate's clock advances by its own amount. `docs/verification.md` lists the other
//! abstractions.

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
