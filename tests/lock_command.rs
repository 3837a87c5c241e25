//! `leasehold lock` and `leasehold locks` as a job and an operator use them, on
//! a real replica set.

// It observes from outside, so it has clocks of its own.
#![allow(clippy::disallowed_methods)]
#![allow(
    clippy::unwrap_used,
    reason = "a fixture that fails should end its test"
)]

#[path = "lock_command/acquisition.rs"]
mod acquisition;
#[path = "lock_command/bad_input.rs"]
mod bad_input;
#[path = "lock_command/brisk_traffic.rs"]
mod brisk_traffic;
#[path = "lock_command/exclusion.rs"]
mod exclusion;
#[path = "lock_command/hidden.rs"]
mod hidden;
#[path = "lock_command/inside.rs"]
mod inside;
#[path = "lock_command/job.rs"]
mod job;
#[path = "lock_command/losing.rs"]
mod losing;
#[path = "lock_command/operators.rs"]
mod operators;
#[path = "lock_command/process_one.rs"]
mod process_one;
#[path = "lock_command/without_command.rs"]
mod without_command;
