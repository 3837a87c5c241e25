//! How far a workload is, and how it ended.

use std::io;

use crate::shim;

/// How CMD ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// With this code.
    Exited(u8),
    /// By this signal.
    Signalled(i32),
    /// It cannot be executed: the error number of `exec`.
    NotExecuted(i32),
    /// No process could be made for it: the error number.
    NotSpawned(i32),
    /// It was not started: the deadline had passed, or it was to end already.
    Refused,
    /// The guard was lost, and with it how CMD ended.
    Unknown,
}

impl End {
    /// As a shell has it: CMD's code, 128 + N after signal N, 127 if it was
    /// not found, 126 if it cannot be executed; `None` where it never ran for
    /// a reason of ours, or nobody knows.
    pub fn exit_code(self) -> Option<u8> {
        match self {
            Self::Exited(code) => Some(code),
            Self::Signalled(signal) => Some(u8::try_from(128 + signal).unwrap_or(u8::MAX)),
            Self::NotExecuted(errno) => Some(shim::exit_code(errno)),
            Self::NotSpawned(_) | Self::Refused | Self::Unknown => None,
        }
    }

    /// Why it never ran, where that lies in CMD or in the machine.
    pub fn not_executed(self) -> Option<io::Error> {
        match self {
            Self::NotExecuted(errno) | Self::NotSpawned(errno) => {
                Some(io::Error::from_raw_os_error(errno))
            }
            Self::Exited(_) | Self::Signalled(_) | Self::Refused | Self::Unknown => None,
        }
    }
}

/// CMD and all its descendants are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// How CMD ended.
    pub end: End,
    /// It had been told to end: by us, by its deadline, or because its guard was lost.
    pub by_us: bool,
    /// A key of the terminal (Ctrl-C, Ctrl-\) ended it, so whoever pressed it
    /// wants the daemon to end too.
    pub interrupted: bool,
    /// The guard was lost: CMD was ended for that, and the claim should be too.
    pub guard_lost: bool,
}

/// How far a workload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The guard or the shim is at work.
    Starting,
    /// CMD was executed.
    Running {
        /// Its process id, which is its process group's too.
        pid: u32,
    },
    /// CMD has ended, or lost its guard; descendants are being ended.
    Ending {
        /// How it ended, as far as is known.
        end: End,
        /// As in [`Ended`].
        by_us: bool,
    },
    /// Nothing of it is left.
    Gone(Ended),
}
