//! Goal: to a shell, a parent and a terminal, a command under leasehold looks like the plain
//! command. Method: each situation runs the plain command, flock(1), tini and leasehold, and
//! compares them. `deviations.rs` and docs/supervision.md list each difference with its reason.

// The tests observe from outside, so they use their own clocks.
#![allow(clippy::disallowed_methods)]
#![allow(
    clippy::unwrap_used,
    reason = "a fixture that fails should end its test"
)]

mod deviations;
mod ends;
mod inherited;
mod prerequisites;
mod signals;
mod stopping;
mod table;
mod terminal;
mod tool;
