//! Goal: a shell, a parent process and a terminal cannot distinguish a command under leasehold from
//! the plain command. Method: run the command in each situation plainly and under flock(1), tini
//! and leasehold, and compare the observations. `deviations.rs` lists the exceptions, and
//! docs/supervision.md gives their reasons.

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
