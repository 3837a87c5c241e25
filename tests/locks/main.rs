//! Locks on real replica sets. One file per behaviour.

// It observes from outside, so it has clocks of its own.
#![allow(clippy::disallowed_methods)]

mod drawn;
mod fenced_writes;
mod foreign_documents;
mod library;
mod limits;
mod newer_fields;
mod operators;
mod scene;
mod unknown_outcomes;
mod wake;
mod writes;
