//! Commands in the hands of a guard: real processes, and the faults of each.

#![allow(
    clippy::unwrap_used,
    reason = "a fixture that fails should end its test"
)]

#[path = "workload/ending.rs"]
mod ending;
#[path = "workload/scene.rs"]
mod scene;
