//! The part that leases and locks share: turns and effects, calls and their outcomes, sent writes,
//! reads, and rollbacks of the store.
//!
//! Nothing here knows a document, an operation or a rule of either protocol.

mod outbox;
mod outcome;
mod reads;
mod sent_writes;
mod turn;
mod watermarks;

pub(crate) use outbox::Outbox;
pub use outcome::Outcome;
pub(crate) use reads::{ReadInFlight, ReadSchedule};
pub(crate) use sent_writes::{IN_FLIGHT_MAX, SentWrite, SentWrites, WriteState};
pub(crate) use turn::{Turn, earliest};
pub(crate) use watermarks::{Rollback, Watermarks};
