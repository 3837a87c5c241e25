//! The rules of the protocol, one by one: what a contender does about each
//! thing that can happen to it.

// A test names the one that it means.
#![allow(clippy::wildcard_enum_match_arm)]

mod ending;
mod harness;
mod queueing;
mod refusals;
mod unknown_outcomes;
