//! `leasehold run -- CMD` from end to end: real daemons on a real replica set,
//! with commands that write down when they run.

#![allow(
    clippy::unwrap_used,
    reason = "a fixture that fails should end its test"
)]

#[path = "daemon/contest.rs"]
#[allow(dead_code, reason = "each suite needs a part of it")]
mod contest;
#[path = "supervision/deaths.rs"]
mod deaths;
#[path = "supervision/exits.rs"]
mod exits;
#[path = "supervision/hand_over.rs"]
mod hand_over;
#[path = "supervision/health.rs"]
mod health;
#[path = "supervision/hooks.rs"]
mod hooks;
#[path = "supervision/journal.rs"]
mod journal;
#[path = "supervision/one_token.rs"]
mod one_token;
#[path = "supervision/secrets.rs"]
mod secrets;
#[path = "supervision/start.rs"]
mod start;
