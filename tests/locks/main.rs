//! Tests locks on real replica sets. Each file tests one behavior.

// Test code may read the clock directly.
#![allow(clippy::disallowed_methods)]

mod cancellation;
mod drawn;
mod edited;
mod embedded_elector;
mod embedding;
mod fenced_writes;
mod fixture;
mod foreign_documents;
mod granting;
mod library;
mod limits;
mod never_begun;
mod newer_fields;
mod one_client;
mod operators;
mod releases;
mod unknown_outcomes;
mod wake;
mod writes;
