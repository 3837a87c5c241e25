//! Tests `leasehold run -- CMD` end to end: real daemons on a real replica set run commands that
//! record their events.

#![allow(clippy::unwrap_used, reason = "a failing fixture should fail the test")]

mod container_kills;
#[path = "../daemon/contest.rs"]
#[allow(dead_code, reason = "each suite uses only a part")]
mod contest;
mod daemon_deaths;
mod deaths;
mod exits;
mod hand_over;
mod health;
mod hooks;
mod journal;
mod kill_scene;
mod kills;
mod one_token;
mod out_of_memory;
mod pod;
mod secrets;
mod start;
mod stuck;
mod two_containers;
mod witness;
