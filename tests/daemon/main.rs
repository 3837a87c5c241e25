//! Tests the daemon end to end. Runs real processes on a real three-member replica set, and
//! observes them as workloads and operators do.

#![allow(
    clippy::unwrap_used,
    reason = "a fixture that fails should end its test"
)]

mod at_rest;
mod bad_input;
mod bounded_exit;
mod bury;
mod command;
mod confirmation;
mod contest;
mod credentials;
mod event_readers;
mod event_stream;
mod footprint;
mod frozen_leader;
mod hand_over;
mod log_lines;
mod monitor;
mod one_leader;
mod packaged_unit;
mod priorities;
mod proof_of_death;
mod reload;
mod signals;
mod standby;
mod start_refused;
mod status_command;
mod status_directory;
mod store_elections;
mod store_unreachable;
mod systemd;
mod takeover;
mod unread_log;
mod unwritable_status;
