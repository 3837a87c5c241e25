//! The operators' commands on a real replica set with real daemons: what they print, write and
//! refuse.

// The tests observe from outside, so they use their own clocks.
#![allow(clippy::disallowed_methods)]
#![allow(
    clippy::unwrap_used,
    reason = "a fixture that fails should end its test"
)]

mod bad_input;
mod command;
mod guarded;
mod listing;
mod live;
mod many;
mod repair;
mod replicas;
mod requests;
mod unhealthy;
mod waiting;
