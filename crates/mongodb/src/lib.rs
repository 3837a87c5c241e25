//! Leader election and locks on the MongoDB replica set that you already run, for programs that
//! embed them.
//!
//! [`elector`] provides a candidate for a lease as a value and [`locker`] a lock as a value.
//! [`fenced`] lets a document reject late writes of a former holder. [`store`] keeps leases and
//! locks in MongoDB; the state machines of `leasehold_core` contain the rules. [`uri`] checks
//! connection strings.
//!
//! Limit: an effect that is in progress when authority ends is not stopped. Send the fencing token
//! with each effect, and let the receiver reject a token lower than one it has seen ([`fenced`]).
//!
//! Errors, options, events and retry policies may get further variants and fields
//! (`#[non_exhaustive]`). Three groups are complete on purpose, and change with an incompatible
//! version only. The first is inputs, effects and the status of the state machines
//! (`leasehold_core`), except [`Reason`](election::Reason) and [`Loss`](lock::Loss), and
//! [`locker::LockDecision`], because a program must decide about each new value. The second is
//! records for observers ([`calls::AnsweredCall`], [`locker::Finished`], [`store::StoreInfo`]) and
//! answers of a [`store::Store`], because tests of programs and other stores build them. The third is
//! [`store::mongo::operators`] and [`store::mongo::probe`], because an operator's command shows
//! each of their values in its own way.
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
