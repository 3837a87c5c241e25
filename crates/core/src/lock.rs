//! Lock protocol without I/O: exclusive, shared and N-slot locks with a fair queue, one document
//! per lock.
//!
//! The module uses no clock and no MongoDB client, and does not run the work under a lock.
//! [`LockContender`] is one contender for one lock. Its caller passes in the time and events
//! ([`LockContender::handle`]), carries out the requested effects ([`LockContender::next_effect`]),
//! and calls again at the requested instant ([`LockContender::next_wakeup`]). `docs/locks.md`
//! describes the protocol and why it is safe.

#![warn(clippy::wildcard_enum_match_arm)]

#[cfg(proof)]
#[macro_use]
#[path = "../../proof/src/planted/lock.rs"]
pub(crate) mod mutation;

mod claim_writes;
mod contender;
mod document;
mod effect;
mod grant;
mod input;
mod observations;
mod observer;
mod operation;
mod scaled;
mod status;
mod success;
mod view;

#[cfg(proof)]
pub(crate) use contender::Form;
pub use contender::LockContender;
pub use document::*;
pub use effect::*;
pub use grant::Grant;
pub use input::*;
pub use observations::{EntryState, Observation, Observations};
pub use observer::Observer;
pub use operation::*;
pub use scaled::scaled;
pub use status::*;
pub use success::*;

#[cfg(all(test, not(proof)))]
mod tests;
