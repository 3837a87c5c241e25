//! The operators' commands on a real replica set with real daemons: what they print, write and
//! refuse.

// Test code may read the clock directly.
#![allow(clippy::disallowed_methods)]
#![allow(clippy::unwrap_used, reason = "a failing fixture should fail the test")]

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
