//! The daemon from end to end: real processes on a real three-node replica
//! set, observed as workloads and operators observe them.

#![allow(
    clippy::unwrap_used,
    reason = "a fixture that fails should end its test"
)]

#[path = "daemon/bad_input.rs"]
mod bad_input;
#[path = "daemon/bounded_exit.rs"]
mod bounded_exit;
#[path = "daemon/command.rs"]
mod command;
#[path = "daemon/confirmation.rs"]
mod confirmation;
#[path = "daemon/contest.rs"]
mod contest;
#[path = "daemon/credentials.rs"]
mod credentials;
#[path = "daemon/footprint.rs"]
mod footprint;
#[path = "daemon/frozen_leader.rs"]
mod frozen_leader;
#[path = "daemon/hand_over.rs"]
mod hand_over;
#[path = "daemon/log_lines.rs"]
mod log_lines;
#[path = "daemon/lookout.rs"]
mod lookout;
#[path = "daemon/one_leader.rs"]
mod one_leader;
#[path = "daemon/proof_of_death.rs"]
mod proof_of_death;
#[path = "daemon/reload.rs"]
mod reload;
#[path = "daemon/signals.rs"]
mod signals;
#[path = "daemon/start_refused.rs"]
mod start_refused;
#[path = "daemon/status_command.rs"]
mod status_command;
#[path = "daemon/status_directory.rs"]
mod status_directory;
#[path = "daemon/store_unreachable.rs"]
mod store_unreachable;
#[path = "daemon/systemd.rs"]
mod systemd;
#[path = "daemon/takeover.rs"]
mod takeover;
#[path = "daemon/unread_log.rs"]
mod unread_log;
#[path = "daemon/unwritable_status.rs"]
mod unwritable_status;
