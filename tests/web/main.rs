//! `leasehold web` on a real replica set with real daemons: its HTTP answers, the visitors that it
//! refuses, and the page in a real browser.

// The tests observe from outside, so they use their own clocks.
#![allow(clippy::disallowed_methods)]
#![allow(
    clippy::unwrap_used,
    reason = "a fixture that fails should end its test"
)]

mod actions;
mod bounds;
mod browser;
mod events;
mod kept;
mod page;
mod screenshots;
mod server;
mod visitors;
