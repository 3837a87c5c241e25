//! Operating system services for leasehold's commands: signals, exit codes, log lines that never
//! block, limits, the processes that use a file or port, and readable system errors.

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
pub mod program;
pub mod signals;
pub mod sink;
pub mod terminal;

pub use command_error::CommandError;
