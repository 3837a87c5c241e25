//! Locks as people make them by hand on MongoDB, on a real replica set with
//! real processes: each design works in calm weather, and each breaks.
//!
//! A test here asserts that the hand-made lock *does* break. The scenes
//! (`scene.rs`) take the means of locking as a parameter, so that `leasehold
//! lock` is put through the very same ones.

// It observes from outside, so it has clocks of its own.
#![allow(clippy::disallowed_methods)]

#[path = "handmade/client.rs"]
mod client;
#[path = "handmade/designs.rs"]
mod designs;
#[path = "handmade/documented.rs"]
mod documented;
#[path = "handmade/in_calm_weather.rs"]
mod in_calm_weather;
#[path = "handmade/journal.rs"]
mod journal;
#[path = "handmade/leaked.rs"]
mod leaked;
#[path = "handmade/leasehold.rs"]
mod leasehold;
#[path = "handmade/outlasted.rs"]
mod outlasted;
#[path = "handmade/paused_client.rs"]
mod paused_client;
#[path = "handmade/same_owner.rs"]
mod same_owner;
#[path = "handmade/scene.rs"]
mod scene;
#[path = "handmade/skewed_clock.rs"]
mod skewed_clock;
#[path = "handmade/ttl_monitor.rs"]
mod ttl_monitor;
#[path = "handmade/version_conflict.rs"]
mod version_conflict;
