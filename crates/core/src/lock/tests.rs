//! Rules of the protocol, one by one: the reaction of a contender to each possible event.

// Each test handles only the variant that it expects.
#![allow(clippy::wildcard_enum_match_arm)]

mod edited;
mod ending;
mod evicting;
mod granting;
mod harness;
mod keeping;
mod once_per;
mod queueing;
mod refusals;
mod unknown_outcomes;
