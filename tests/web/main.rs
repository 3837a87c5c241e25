//! Tests `leasehold web` with real daemons on a real replica set: its HTTP responses, access
//! control, and the page in a real browser.

// Test code may read the clock directly.
#![allow(clippy::disallowed_methods)]
#![allow(clippy::unwrap_used, reason = "a failing fixture should fail the test")]

mod actions;
mod bounds;
mod browser;
mod events;
mod kept;
mod links;
mod look;
mod many;
mod metrics;
mod page;
mod production;
mod screenshots;
mod server;
mod silent;
mod visitors;
