//! The progress of a workload, and how it ended.
//!
//! **Gone** means that every process in CMD's process group and every adopted descendant has ended,
//! and that the kernel reports no remaining child. A descendant cannot escape by `setsid` or a
//! double fork, because the guard and the daemon are subreapers.

use std::io;

use rustix::process::WaitIdStatus;
use serde::{Deserialize, Serialize};

use crate::shim;

/// How CMD ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum CommandEnd {
    /// CMD exited with this code.
    Exited(u8),
    /// This signal terminated CMD.
    Signalled(i32),
    /// CMD could not be executed. Contains the error number of `exec`.
    NotExecuted(i32),
    /// No process could be created for CMD. Contains the error number.
    NotSpawned(i32),
    /// CMD was not started, because the deadline had passed or a stop had been requested.
    Refused,
    /// The end of CMD is not known yet, or can no longer be known because the guard was lost.
    #[default]
    Unknown,
}

impl CommandEnd {
    pub(crate) fn of(status: &WaitIdStatus) -> Self {
        match (status.exit_status(), status.terminating_signal()) {
            // An exit code has eight bits.
            (Some(code), _) => Self::Exited(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
            (None, Some(signal)) => Self::Signalled(signal),
            (None, None) => Self::Unknown,
        }
    }

    /// Returns the exit code that a shell would report: CMD's own code, 128 + N after signal N, 127
    /// if CMD was not found, 126 if it cannot be executed. `None` if CMD did not run, or its end is
    /// unknown.
    pub fn exit_code(self) -> Option<u8> {
        match self {
            Self::Exited(code) => Some(code),
            Self::Signalled(signal) => Some(u8::try_from(128 + signal).unwrap_or(u8::MAX)),
            Self::NotExecuted(errno) => Some(shim::exit_code(errno)),
            Self::NotSpawned(_) => Some(shim::NOT_EXECUTABLE),
            Self::Refused | Self::Unknown => None,
        }
    }

    /// Returns the error of a failed start.
    pub fn not_executed(self) -> Option<io::Error> {
        let (Self::NotExecuted(errno) | Self::NotSpawned(errno)) = self else {
            return None;
        };
        Some(io::Error::from_raw_os_error(errno))
    }
}

/// The end of CMD and all its descendants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Termination {
    /// How CMD ended.
    pub end: CommandEnd,
    /// True if CMD was stopped or killed: on request, at its deadline, or because its guard was
    /// lost.
    pub by_us: bool,
    /// True if a key of the terminal (Ctrl-C, Ctrl-\) ended CMD, so that the daemon should end too.
    pub interrupted: bool,
    /// True if CMD left descendants that ended by themselves before they were asked to end.
    pub lingered: bool,
    /// True if CMD was ended because the guard was lost. The claim should then end too.
    pub guard_lost: bool,
}

/// The progress of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandProgress {
    /// The guard or the shim is starting.
    Starting,
    /// CMD has been executed, and has not exited.
    Running {
        /// The process id, which is also the process group id.
        pid: u32,
    },
    /// CMD has exited, or its guard was lost; descendants are being ended.
    Ending {
        /// How CMD ended, as far as known.
        end: CommandEnd,
        /// True if leasehold stopped or killed CMD, as in [`Termination`].
        by_us: bool,
        /// True while CMD's descendants may end by themselves, because CMD was not asked to stop.
        lingers: bool,
    },
    /// CMD and all its descendants are gone.
    Gone(Termination),
}
