//! Leader election on the MongoDB replica set that you already run.
//!
//! This crate is the daemon and its command line: [`cli`], [`config`], [`publish`] and [`admin`].
//! The protocol is in [`election`] and [`lock`], MongoDB in [`store`], and the guard of a command
//! in [`workload`]. `docs/architecture.md` describes the code; `docs/protocol.md` describes the
//! guarantees and their limits.
//!
//! Programs that embed an election should depend on `leasehold-mongodb`, which is smaller. This
//! crate is for tools around the daemon, such as a manual page generator:
//!
//! ```
//! let mut command = leasehold::cli::command();
//! let help = command.render_long_help().to_string();
//! assert!(help.contains("leasehold run --lease"));
//! ```

#![forbid(unsafe_code)]

pub mod admin;
pub mod cli;
pub mod publish;

pub use leasehold_clock as clock;
pub use leasehold_config as config;
pub use leasehold_core::{election, lock};
pub use leasehold_guard as workload;
use leasehold_host::duration;
pub use leasehold_host::{exit, log, signals};
pub use leasehold_mongodb::{calls, elector, fenced, locker, randomness, store, trace, uri};
pub use leasehold_supervisor as supervisor;
