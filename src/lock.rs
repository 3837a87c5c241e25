//! The lock protocol, without IO: exclusive, shared and N-slot locks with a
//! fair queue, in one document each.
//!
//! It does not know clocks, MongoDB, or what runs under a lock. The protocol
//! and why it is safe: `docs/locks.md`.

mod document;
mod operation;

pub use document::*;
pub use operation::*;
