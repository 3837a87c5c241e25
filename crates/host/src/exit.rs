//! The exit codes of `leasehold`, from sysexits.h where possible.

/// Success, including a graceful stop by SIGTERM or SIGINT.
pub const DONE: u8 = 0;
/// A negative answer: `leasehold status` reports "not leader".
pub const NEGATIVE: u8 = 1;
/// The answer cannot be determined.
pub const CANNOT_TELL: u8 = 2;
/// `leasehold check`: there are warnings.
pub const CHECK_WARNING: u8 = 1;
/// `leasehold check`: a check failed.
pub const CHECK_FAILED: u8 = 2;
/// A request to a leader was not carried out in time, but may be carried out later.
pub const UNDER_WAY: u8 = 3;
/// The command line is invalid (EX_USAGE).
pub const USAGE: u8 = 64;
/// A one-shot command cannot reach MongoDB (EX_UNAVAILABLE).
pub const STORE_UNREACHABLE: u8 = 69;
/// The operating system refused a resource that leasehold or its command needs (EX_OSERR).
pub const SYSTEM: u8 = 71;
/// The lock was not acquired (EX_TEMPFAIL).
pub const NOT_ACQUIRED: u8 = 75;
/// The lock was lost while the command ran.
pub const LOCK_LOST: u8 = 76;
/// The command exited with 0, but a process that it left behind was stopped. Its work may be
/// incomplete.
pub const INCOMPLETE: u8 = LOCK_LOST;
/// The command was not run, because it succeeded recently (convention of automake).
pub const SKIPPED: u8 = 77;
/// The command cannot be executed (shell convention).
pub const CANNOT_EXECUTE: u8 = 126;
/// The command was not found (shell convention).
pub const NOT_FOUND: u8 = 127;
/// Base of the exit codes after a signal: 128 plus the signal number (shell convention).
pub const SIGNALLED: u8 = 128;
/// The command was killed (SIGKILL).
pub const KILLED: u8 = SIGNALLED + 9;
/// The configuration is invalid (EX_CONFIG).
pub const CONFIGURATION: u8 = 78;
