//! The exit codes of `leasehold`, as sysexits.h has them where it has one.

/// Done, also after a graceful TERM or INT.
pub const DONE: u8 = 0;
/// A negative answer: `leasehold status` says not leader.
pub const NEGATIVE: u8 = 1;
/// The question cannot be answered.
pub const CANNOT_TELL: u8 = 2;
/// The command line is wrong (EX_USAGE).
pub const USAGE: u8 = 64;
/// The store cannot be reached by a one-shot command (EX_UNAVAILABLE).
pub const STORE_UNREACHABLE: u8 = 69;
/// The operating system refused what the command needs itself (EX_OSERR).
pub const SYSTEM: u8 = 71;
/// The lock was not acquired (EX_TEMPFAIL).
pub const NOT_ACQUIRED: u8 = 75;
/// The lock was lost while the command ran.
pub const LOCK_LOST: u8 = 76;
/// A command cannot be executed, as shells say it.
pub const CANNOT_EXECUTE: u8 = 126;
/// A command is not found, as shells say it.
pub const NOT_FOUND: u8 = 127;
/// Added to the number of the signal that ended a command, as shells do.
pub const SIGNALLED: u8 = 128;
/// The configuration is wrong (EX_CONFIG).
pub const CONFIGURATION: u8 = 78;
