//! The process of a guard, as its daemon sees it: a child, or process 1 of another container.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use super::children::reap;
use super::groups::number;
use super::orphans::WaitedFor;

#[derive(Debug)]
pub(super) struct GuardProcess {
    /// Becomes readable when the guard has exited. If the guard is process 1 of a PID namespace,
    /// all other processes of the namespace have exited by then.
    pidfd: OwnedFd,
    /// The process id of the guard, if it is a child. This process then reaps the guard.
    child: Option<WaitedFor>,
}

impl GuardProcess {
    pub(super) fn child(pid: Pid) -> io::Result<Self> {
        let child = WaitedFor::new(pid);
        Ok(Self {
            pidfd: pidfd_open(pid, PidfdFlags::NONBLOCK)?,
            child: Some(child),
        })
    }

    pub(super) fn attached(pidfd: OwnedFd) -> Self {
        Self { pidfd, child: None }
    }

    pub(super) fn is_attached(&self) -> bool {
        self.child.is_none()
    }

    pub(super) fn pid(&self) -> u32 {
        let child = self.child.as_ref();
        child.map_or(0, |child| number(child.pid()).unsigned_abs())
    }

    /// Sends a signal to a child. A guard in another container cannot be signalled.
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(child) = &self.child {
            // This call fails only if the guard has exited.
            let _ = kill_process(child.pid(), signal);
        }
    }

    /// Returns true once the guard has exited and, if it is a child, was reaped.
    pub(super) fn reap(&self) -> bool {
        self.child.as_ref().is_none_or(|child| reap(child.pid()))
    }
}

impl AsRawFd for GuardProcess {
    fn as_raw_fd(&self) -> RawFd {
        self.pidfd.as_raw_fd()
    }
}
