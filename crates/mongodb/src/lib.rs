//! Leader election and locks on the MongoDB replica set that you already run,
//! for programs that embed them.
//!
//! [`elector`] is a candidate for a lease as a value, [`locker`] a lock as a
//! value, and [`fenced`] lets a document refuse what an ex-holder still writes.
//! [`store`] keeps leases and locks in MongoDB; [`runner`] joins it and the
//! state machines of `leasehold_core`, in which the rules are.

#![forbid(unsafe_code)]

pub mod calls;
pub mod elector;
pub mod fenced;
pub mod locker;
pub mod runner;
pub mod store;

pub use leasehold_core::{election, lock};
