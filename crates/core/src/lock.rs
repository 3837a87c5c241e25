//! Locks without IO: exclusive, shared and N-slot locks with a fair queue. One lock is one
//! document. `docs/locks.md` explains the protocol.

#![warn(clippy::wildcard_enum_match_arm)]

#[cfg(proof)]
#[macro_use]
#[path = "../../proof/src/planted/lock.rs"]
pub(crate) mod mutation;

mod claim_writes;
mod contender;
mod document;
mod grant;
mod input;
mod observations;
mod operation;
mod scaled;
mod status;
mod view;

#[cfg(proof)]
pub(crate) use contender::Form;
pub use contender::LockContender;
pub use document::*;
pub use grant::Grant;
pub use input::*;
pub use observations::{EntryState, Observation, Observations, Observer};
pub use operation::*;
pub use scaled::scaled;
pub use status::*;

#[cfg(all(test, not(proof)))]
mod tests;
