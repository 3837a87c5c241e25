//! Leader election on the MongoDB replica set that you already run.
//!
//! What it does not promise comes first. An effect that is under way when
//! authority ends is not stopped: send the fencing token with each effect and
//! let the receiver refuse a lower one than it has seen. Clocks that stop (a
//! paused or snapshotted virtual machine), or run at rates further apart than
//! `lease_duration / renew_deadline`, void the exclusion.
//!
//! What it does promise: while that holds, at most one candidate has authority
//! at any instant; authority has a deadline, counted from before the write
//! that gave it was sent; and every surface is a deadline, so that nothing
//! says "leader" when it isn't. The argument is in `docs/protocol.md`, the map
//! of the code in `docs/architecture.md`.
//!
//! - [`election`] is the protocol as a state machine without IO.
//! - [`store`] keeps leases and locks in MongoDB; [`runner`] joins the two.
//! - [`elector`] is a candidate as a value, for programs that embed one.
//! - [`workload`] runs a command for as long as there is authority for it.
//! - [`lock`] is the lock protocol without IO, [`locker`] a lock as a value, and
//!   [`fenced`] lets a document refuse what an ex-holder still writes.
//! - [`publish`] and [`admin`] tell the world; [`config`] and [`cli`] make the daemon.

#![forbid(unsafe_code)]

pub mod admin;
mod cause;
pub mod cli;
pub mod config;
pub mod exit;
pub mod log;
pub mod publish;
pub mod signals;
pub mod supervisor;

pub use leasehold_clock as clock;
pub use leasehold_core::{election, lock};
pub use leasehold_guard as workload;
pub use leasehold_mongodb::{calls, elector, fenced, locker, runner, store};
