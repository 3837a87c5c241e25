//! The kernel that leases and locks share: store calls and effects, random delays, and the writes of
//! a claim.
//!
//! Nothing here knows a document, an operation or a rule of either protocol.

mod outbox;
mod sent_writes;
mod turn;

pub(crate) use outbox::Outbox;
pub(crate) use sent_writes::{IN_FLIGHT_MAX, SentWrite, SentWrites, WriteState};
pub(crate) use turn::{Turn, earliest};
