//! Commands that are run by a guard: real processes, and the faults of each.

#![allow(
    clippy::unwrap_used,
    reason = "a fixture that fails should end its test"
)]

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
