//! The surroundings of a command of leasehold: signals, exit codes, log lines that never
//! block, limits, processes that use a file or port, and readable reasons for system errors.
//!
//! ```
//! use leasehold_host::cause::cause;
//!
//! let error = std::io::Error::from_raw_os_error(2);
//! assert_eq!(cause(&error), "no such file or directory");
//! ```

#![forbid(unsafe_code)]

pub mod bounded_file;
pub mod cause;
mod command_error;
pub mod duration;
pub mod exit;
pub mod limits;
pub mod log;
pub mod occupant;
pub mod privacy;
pub mod signals;
pub mod sink;

pub use command_error::CommandError;
