//! Leader election and locks on the MongoDB replica set that you already run, for programs that
//! embed them.
//!
//! [`elector`] provides a candidate for a lease, and [`locker`] provides a lock. With [`fenced`], a
//! document rejects late writes of a former holder. [`store`] keeps leases and locks in MongoDB.
//! The state machines of `leasehold_core` contain the rules. [`uri`] checks connection strings.
//!
//! Limit: an effect in progress when authority ends is not stopped. Send the fencing token with
//! each effect, and let the receiver reject every token lower than the highest it has seen
//! ([`fenced`]).
//!
//! Errors, reasons, options, events and retry policies are `#[non_exhaustive]`. Other types gain a
//! variant or field only in an incompatible version, because programs must handle or build every
//! value of these types. For example, programs handle each [`locker::LockDecision`], and each
//! input, effect and status of a state machine. The commands of leasehold print every value of the
//! types in [`store::mongo::operators`] and [`store::mongo::probe`].
//!
//! ```no_run
//! use leasehold_mongodb::election::{Identity, ResourceName};
//! use leasehold_mongodb::elector::{Elector, ElectorOptions};
//! use leasehold_mongodb::store::mongo::StoreOptions;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let uri = "mongodb://localhost/?replicaSet=rs0";
//! let store = StoreOptions::new(uri, Identity::new("host-1")?);
//! let lease = ResourceName::new("orders-scheduler")?;
//! let elector = Elector::start(ElectorOptions::new(store, lease));
//! let mut status = elector.status();
//! while elector.authority().is_none() {
//!     status.changed().await?;
//! }
//! // Leading, until `elector.authority()` says otherwise.
//! elector.stop().await?;
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

pub mod calls;
#[cfg(test)]
#[path = "../../../tests/corpus/mod.rs"]
mod corpus;
pub mod elector;
mod event_loop;
pub mod fenced;
pub mod locker;
pub mod randomness;
pub mod store;
pub mod trace;
pub mod uri;

pub use leasehold_core::{election, lock};

#[cfg(doctest)]
#[doc = include_str!("../tests/lists_that_can_grow.md")]
struct ListsThatCanGrow;
