//! The state machine, step by step, against a store in memory.
//!
//! No time passes here but what a test says; ids come from a counter. Each
//! file is a part of the protocol; the invariants are named in the tests.

mod authority;
mod broken_invariants;
mod contending;
mod drawn;
mod harness;
mod health;
mod late_answers;
mod losing;
mod open_claims;
mod operators;
mod own_claims;
mod polling;
mod published;
mod store_faults;
mod streams;
mod supervised;
mod table;
mod words;
