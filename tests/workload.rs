//! Commands in the hands of a guard: real processes, and the faults of each.

#![allow(clippy::print_stderr, reason = "a test that cannot run here says so")]
#![allow(
    clippy::unwrap_used,
    reason = "a fixture that fails should end its test"
)]

#[path = "workload/daemon_lost.rs"]
mod daemon_lost;
#[path = "workload/deadlines.rs"]
mod deadlines;
#[path = "workload/descendants.rs"]
mod descendants;
#[path = "workload/ending.rs"]
mod ending;
#[path = "workload/guard_lost.rs"]
mod guard_lost;
#[path = "workload/inheritance.rs"]
mod inheritance;
#[path = "workload/on_a_terminal.rs"]
mod on_a_terminal;
#[path = "workload/prepared.rs"]
mod prepared;
#[path = "workload/scene.rs"]
mod scene;
#[path = "workload/stand_in.rs"]
mod stand_in;
