//! Tests that labels and Events reach a real API server. Real daemons run with the credentials of
//! pods, on a real replica set, with injected faults.

#![cfg(feature = "kubernetes")]
#![allow(clippy::unwrap_used, reason = "a failing fixture should fail the test")]
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "the tests measure times with their own clock and print them"
)]

mod api_server_lost;
mod cluster;
mod debug_log;
mod events;
mod label_follows_leadership;
mod label_is_repaired;
mod label_turns_before_release;
mod moved;
mod never_evidence;
mod no_connection_is_kept;
mod other_pods;
mod policy_is_missing;
mod publisher;
mod refusals;
mod start;
