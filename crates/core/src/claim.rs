//! The part that leases and locks share: effects, ids of store calls, and random delays. Only locks
//! use the list of sent writes, because a lease forgets older writes earlier.
//!
//! Nothing here knows a document, an operation or a rule of either protocol.

mod outbox;
mod outcome;
mod sent_writes;
mod turn;

pub(crate) use outbox::Outbox;
pub use outcome::Outcome;
pub(crate) use sent_writes::{IN_FLIGHT_MAX, SentWrite, SentWrites, WriteState};
pub(crate) use turn::{Turn, earliest};
