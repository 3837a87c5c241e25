//! The lock protocol, without IO: exclusive, shared and N-slot locks with a
//! fair queue, in one document each.
//!
//! It does not know clocks, MongoDB, or what runs under a lock.
//! [`LockContender`] is one contender for one lock: it is told the time and
//! what happened ([`LockContender::handle`]), and asks for effects
//! ([`LockContender::next_effect`]) and to be called again at an instant
//! ([`LockContender::next_wakeup`]). The protocol and why it is safe:
//! `docs/locks.md`.

#![warn(clippy::wildcard_enum_match_arm)]

#[cfg(test)]
#[macro_use]
pub mod mutation;

mod contender;
mod document;
mod effect;
mod input;
mod observer;
mod operation;
pub mod reference;
mod scaled;
mod sightings;
mod stake;
mod status;
mod view;

pub use contender::LockContender;
pub use document::*;
pub use effect::*;
pub use input::*;
pub use observer::Observer;
pub use operation::*;
pub use scaled::scaled;
pub use sightings::{EntryState, Sighting, Sightings};
pub use status::*;

#[cfg(test)]
mod tests;
