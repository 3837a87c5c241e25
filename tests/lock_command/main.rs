//! Tests `leasehold lock` and `leasehold locks`, as jobs and operators use them, on a real replica
//! set.

// The tests observe processes from outside, with their own clocks.
#![allow(clippy::disallowed_methods)]
#![allow(
    clippy::unwrap_used,
    reason = "a fixture that fails should end its test"
)]

mod acquisition;
mod another_user;
mod at_least;
mod bad_input;
mod brisk_traffic;
mod edited;
mod elections;
mod exclusion;
mod hidden;
mod inside;
mod job;
mod losing;
mod lost_replies;
mod once_per;
mod operators;
mod process_limit;
mod process_one;
mod prune;
mod releases;
mod skipped;
mod standard_input;
mod stuck;
mod without_command;
