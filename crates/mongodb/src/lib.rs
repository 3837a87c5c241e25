//! Leader election and locks on the MongoDB replica set that you already run, for programs that
//! embed them.
//!
//! [`elector`] provides a candidate for a lease as a value and [`locker`] a lock as a value.
//! [`fenced`] lets a document reject late writes of a former holder. [`store`] keeps leases and
//! locks in MongoDB; [`runner`] connects it to the state machines of `leasehold_core`, which
//! contain the rules.
//!
//! Limit: an effect that is in progress when authority ends is not stopped. Send the fencing token
//! with each effect, and let the receiver reject a token lower than one it has seen ([`fenced`]).
//!
//! ```no_run
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use leasehold_mongodb::election::{Identity, LeaseName, Timings, Token, Tunables};
//! use leasehold_mongodb::elector::{Elector, ElectorOptions};
//! use leasehold_mongodb::store::mongo::MongoOptions;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let timings = Timings::default();
//! let elector = Elector::start(ElectorOptions {
//!     mongo: MongoOptions {
//!         uri: Arc::new(|| Ok("mongodb://localhost/?replicaSet=rs0".to_owned())),
//!         database: "leasehold".to_owned(),
//!         collection: "leases".to_owned(),
//!         operation_timeout: timings.operation_timeout(),
//!         heartbeat: Duration::from_secs(10),
//!         retry_interval: timings.retry_interval(),
//!         lease_duration: timings.lease_duration(),
//!         lease: LeaseName::new("orders-scheduler")?,
//!         identity: Identity::new("host-1")?,
//!         address: None,
//!         home: None,
//!     },
//!     tunables: Tunables {
//!         timings,
//!         handoff_delay: Duration::ZERO,
//!         workload_ends_first: false,
//!     },
//!     token_remembered: Token::ZERO,
//!     lease_longest_remembered: None,
//!     claim_of_the_dead: None,
//! });
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

pub mod calls;
pub mod elector;
pub mod fenced;
pub mod locker;
pub mod runner;
pub mod store;

pub use leasehold_core::{election, lock};
