//! Goal: to a shell, a parent and a terminal, a command under leasehold looks like the plain
//! command. Method: each situation runs the plain command, flock(1), tini and leasehold, and
//! compares them. `deviations.rs` and docs/supervision.md list each difference with its reason.

// Test code may read the clock directly.
#![allow(clippy::disallowed_methods)]
#![allow(clippy::unwrap_used, reason = "a failing fixture should fail the test")]

mod deviations;
mod ends;
mod inherited;
mod prerequisites;
mod signals;
mod stopping;
mod table;
mod terminal;
mod tool;
