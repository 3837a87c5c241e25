//! Tests commands under a guard. The processes are real, and faults are injected into each process.

#![allow(clippy::unwrap_used, reason = "a failing fixture should fail the test")]

mod daemon_lost;
mod deadlines;
mod descendants;
mod ending;
mod fixture;
mod guard_lost;
mod inheritance;
mod on_a_terminal;
mod prepared;
mod recording;
mod stand_in;
