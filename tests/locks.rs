//! Locks on real replica sets. One file per behaviour.

// It observes from outside, so it has clocks of its own.
#![allow(clippy::disallowed_methods)]

#[path = "locks/drawn.rs"]
mod drawn;
#[path = "locks/fenced_writes.rs"]
mod fenced_writes;
#[path = "locks/foreign_documents.rs"]
mod foreign_documents;
#[path = "locks/library.rs"]
mod library;
#[path = "locks/limits.rs"]
mod limits;
#[path = "locks/newer_fields.rs"]
mod newer_fields;
#[path = "locks/operators.rs"]
mod operators;
#[path = "locks/scene.rs"]
mod scene;
#[path = "locks/unknown_outcomes.rs"]
mod unknown_outcomes;
#[path = "locks/wake.rs"]
mod wake;
#[path = "locks/writes.rs"]
mod writes;
