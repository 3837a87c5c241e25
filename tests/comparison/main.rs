//! Tests common designs of hand-made locks on a real replica set with real processes. Each design
//! works in the normal case, and breaks in at least one scenario.
//!
//! Most tests here assert that a hand-made lock *does* break. The scenarios in `fixture.rs` take
//! the locking program as a parameter, so leasehold runs in the same scenarios.

// Test code may read the clock directly.
#![allow(clippy::disallowed_methods)]

mod client;
mod designs;
mod documented;
mod fixture;
mod in_calm_weather;
mod journal;
mod killed_holder;
mod leasehold;
mod outlasted;
mod paused_client;
mod same_owner;
mod skewed_clock;
mod ttl_monitor;
mod version_conflict;
