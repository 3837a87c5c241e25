//! The progress of a workload, and how it ended.
//!
//! **Gone** means that every process in CMD's process group has ended, that every adopted
//! descendant has ended too, round by round, and that the kernel reports no remaining child. CMD's
//! leader is reaped last, so that the id of its process group is not reused before. A descendant
//! cannot escape by `setsid` or a double fork, because guard and daemon are subreapers.

use std::io;

use rustix::process::WaitIdStatus;
use serde::{Deserialize, Serialize};

use crate::shim;

/// The way CMD ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CommandEnd {
    /// Exited with this code.
    Exited(u8),
    /// Terminated by this signal.
    Signalled(i32),
    /// Could not be executed; the error number of `exec`.
    NotExecuted(i32),
    /// No process could be created for it; the error number.
    NotSpawned(i32),
    /// Not started, because the deadline had passed or a stop had been requested.
    Refused,
    /// Unknown, because the guard was lost.
    Unknown,
}

impl CommandEnd {
    /// Converts a status of `waitid`.
    pub(crate) fn of(status: &WaitIdStatus) -> Self {
        match (status.exit_status(), status.terminating_signal()) {
            // An exit code has eight bits.
            (Some(code), _) => Self::Exited(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
            (None, Some(signal)) => Self::Signalled(signal),
            (None, None) => Self::Unknown,
        }
    }

    /// Returns the exit code that a shell would report: CMD's own code, 128 + N after signal N, 127
    /// if CMD was not found, 126 if it cannot be executed. `None` if the end is unknown, or if CMD
    /// never ran for a reason other than CMD itself.
    pub fn exit_code(self) -> Option<u8> {
        match self {
            Self::Exited(code) => Some(code),
            Self::Signalled(signal) => Some(u8::try_from(128 + signal).unwrap_or(u8::MAX)),
            Self::NotExecuted(errno) => Some(shim::exit_code(errno)),
            Self::NotSpawned(_) | Self::Refused | Self::Unknown => None,
        }
    }

    /// Returns the error if CMD never ran because of CMD itself or of the machine.
    pub fn not_executed(self) -> Option<io::Error> {
        match self {
            Self::NotExecuted(errno) | Self::NotSpawned(errno) => {
                Some(io::Error::from_raw_os_error(errno))
            }
            Self::Exited(_) | Self::Signalled(_) | Self::Refused | Self::Unknown => None,
        }
    }
}

/// The end of CMD and all its descendants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Termination {
    /// The way CMD ended.
    pub end: CommandEnd,
    /// True if CMD had been asked to end or killed: on request, at its deadline, or because its
    /// guard was lost.
    pub by_us: bool,
    /// True if a key of the terminal (Ctrl-C, Ctrl-\) ended CMD, which means that the user wants
    /// the daemon to end too.
    pub interrupted: bool,
    /// True if CMD left descendants that ended by themselves, before they were asked to.
    pub lingered: bool,
    /// True if the guard was lost. CMD was ended for that reason, and the claim should end too.
    pub guard_lost: bool,
}

/// The progress of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandProgress {
    /// The guard or the shim is starting.
    Starting,
    /// CMD was executed.
    Running {
        /// The process id, which is also the process group id.
        pid: u32,
    },
    /// CMD has exited, or its guard was lost; descendants are being ended.
    Ending {
        /// The way CMD ended, as far as known.
        end: CommandEnd,
        /// As in [`Termination`].
        by_us: bool,
        /// True while its descendants may end by themselves, because CMD was not asked to stop.
        lingers: bool,
    },
    /// CMD and all its descendants are gone.
    Gone(Termination),
}
