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
//! (`leasehold_core`), except [`Reason`](election::Reason) and [`Loss`](lock::Loss), because a
//! program must decide about each new value. The second is records for observers
//! ([`calls::AnsweredCall`], [`locker::Finished`], [`store::StoreInfo`]) and answers of a
//! [`store::Store`], because tests of programs and other stores build them. The third is
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

/// A program ends its `match` with a wildcard, because the lists can grow.
///
/// ```
/// use leasehold_mongodb::lock::Loss;
/// use leasehold_mongodb::store::RetryPolicy;
///
/// fn shown(loss: Loss, retry: RetryPolicy) -> (&'static str, bool) {
///     let lost = match loss {
///         Loss::Deadline | Loss::Rejected | Loss::StoreRolledBack => "lost",
///         _ => "lost for a new reason",
///     };
///     let is_retried = match retry {
///         RetryPolicy::Retry | RetryPolicy::WaitForServer => true,
///         RetryPolicy::Reconfigure => false,
///         _ => true,
///     };
///     (lost, is_retried)
/// }
/// ```
///
/// ```compile_fail,E0004
/// use leasehold_mongodb::lock::Loss;
///
/// fn shown(loss: Loss) -> &'static str {
///     match loss {
///         Loss::Deadline | Loss::Rejected | Loss::StoreRolledBack => "lost",
///     }
/// }
/// ```
///
/// ```compile_fail,E0004
/// use leasehold_mongodb::store::RetryPolicy;
///
/// fn is_retried(retry: RetryPolicy) -> bool {
///     match retry {
///         RetryPolicy::Retry | RetryPolicy::WaitForServer => true,
///         RetryPolicy::Reconfigure => false,
///     }
/// }
/// ```
#[cfg(doctest)]
struct ListsThatCanGrow;
