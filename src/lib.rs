//! Leader election on the MongoDB replica set that you already run.
//!
//! The limits come first. An effect that is in progress when authority ends is not stopped, so send
//! the fencing token with each effect and let the receiver refuse a token lower than one it has
//! seen. The exclusion is void if clocks stop (a paused or snapshotted virtual machine) or run at
//! rates whose ratio exceeds `lease_duration / renew_deadline`.
//!
//! Within these limits, at most one candidate has authority at any instant. Authority has a
//! deadline, counted from before the write that granted it was sent. Files, HTTP endpoints and
//! metrics are bound to this deadline, so that none of them reports "leader" after it; only the pod
//! label may be late. The argument is in `docs/protocol.md`, the map of the code in
//! `docs/architecture.md`.
//!
//! - [`election`] is the protocol as a state machine without IO.
//! - [`store`] keeps leases and locks in MongoDB; [`runner`] joins the two.
//! - [`elector`] is a candidate as a value, for programs that embed one.
//! - [`workload`] runs a command as long as this process has the authority for it.
//! - [`lock`] is the lock protocol without IO and [`locker`] a lock as a value. [`fenced`] lets a
//!   document refuse writes by former holders.
//! - [`publish`] and [`admin`] publish the status; [`config`] and [`cli`] make the daemon.
//!
//! Programs that embed an election depend on `leasehold-mongodb`, which is smaller. This crate is
//! for tools around the daemon, for example one that writes its manual page:
//!
//! ```
//! let mut command = leasehold::cli::command();
//! let help = command.render_long_help().to_string();
//! assert!(help.contains("leasehold run --lease"));
//! ```

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
