//! Labels and Events on a real API server: real daemons with the credentials
//! of pods, on a real replica set, and faults in between.

#![allow(
    clippy::unwrap_used,
    reason = "a fixture that fails should end its test"
)]
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "it measures the daemon from outside, and what it measured is worth reading"
)]

#[path = "kubernetes/api_server_lost.rs"]
mod api_server_lost;
#[path = "kubernetes/cluster.rs"]
mod cluster;
#[path = "kubernetes/events.rs"]
mod events;
#[path = "kubernetes/label_follows_leadership.rs"]
mod label_follows_leadership;
#[path = "kubernetes/label_is_repaired.rs"]
mod label_is_repaired;
#[path = "kubernetes/label_turns_before_release.rs"]
mod label_turns_before_release;
#[path = "kubernetes/no_connection_is_kept.rs"]
mod no_connection_is_kept;
#[path = "kubernetes/other_pods.rs"]
mod other_pods;
#[path = "kubernetes/publisher.rs"]
mod publisher;
#[path = "kubernetes/refusals.rs"]
mod refusals;
#[path = "kubernetes/start.rs"]
mod start;
