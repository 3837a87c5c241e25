//! A shim, as its guard sees it before there is authority.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::wire::pair;
use super::{EXECUTABLE, SHIM};

pub(crate) struct Shim {
    pub(crate) socket: OwnedFd,
    pub(crate) pid: Pid,
}

impl Shim {
    pub(crate) fn new() -> io::Result<Self> {
        let (socket, theirs) = pair()?;
        // CMD leads a process group from its first instruction on.
        let child = Command::new(EXECUTABLE)
            .arg0("leasehold")
            .arg(SHIM)
            .stdin(Stdio::from(theirs))
            .process_group(0)
            .spawn()?;
        let pid = Pid::from_child(&child);
        Ok(Self { socket, pid })
    }

    /// Kills and reaps a shim that is not needed, or that was killed while it waited.
    pub(crate) fn dismiss(self) {
        let _ = kill_process(self.pid, Signal::KILL);
        let _ = retry_on_intr(|| waitid(WaitId::Pid(self.pid), WaitIdOptions::EXITED));
    }
}
