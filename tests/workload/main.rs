//! Tests commands under a guard, with real processes and with faults injected into each of them.

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
