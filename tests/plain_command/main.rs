//! Goal: to a shell, a parent and a terminal, a command under leasehold is the command alone.
//! Method: each situation runs the plain command, flock(1), tini and leasehold, and compares them.
//! Where leasehold differs from the plain command, `deviations.rs` has the reason, and so has
//! docs/supervision.md.

// The tests observe from outside, so they use clocks of their own.
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
