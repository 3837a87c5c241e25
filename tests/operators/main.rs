//! Runs the operators' commands against real daemons on a real replica set. Checks the commands'
//! output, their writes, and their errors for invalid requests.

// Test code may read the clock directly.
#![allow(clippy::disallowed_methods)]
#![allow(clippy::unwrap_used, reason = "a failing fixture should fail the test")]

mod bad_input;
mod command;
mod guarded;
mod listing;
mod live;
mod locks;
mod many;
mod repair;
mod replicas;
mod requests;
mod retire;
mod silent;
mod unanswered;
mod unhealthy;
mod waiting;
