//! The terminal that the daemon was started on, if there is one.
//!
//! CMD has a process group of its own, so the terminal's keys and input reach
//! it only while that group is in the foreground. The arrangement is a
//! shell's: the foreground is given to CMD where the daemon had it, and taken
//! back when CMD is gone.
//!
//! A background process may hand a terminal over only while SIGTTOU is blocked.

use std::io::{self, IsTerminal};
use std::os::unix::net::UnixStream as StdUnixStream;

use nix::sys::signal::{SigSet, Signal as NixSignal};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, test_kill_process_group};
use rustix::termios::{tcgetpgrp, tcsetpgrp};
use signal_hook::SigId;
use signal_hook::consts::SIGCONT;
use signal_hook::low_level::{pipe, unregister};
use tokio::net::UnixStream;

use super::groups::{number, own_group};

/// The controlling terminal of this process.
#[derive(Debug)]
pub(super) struct Terminal(OwnedFd);

impl Terminal {
    /// `None`: there is none.
    pub(super) fn of_this_process() -> Option<Self> {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        open("/dev/tty", flags, Mode::empty()).ok().map(Self)
    }

    /// Whether this process's group is in the foreground.
    pub(super) fn is_ours(&self) -> bool {
        self.foreground().map(number) == Some(own_group())
    }

    /// The group in the foreground; `None` too for one outside of this PID namespace.
    pub(super) fn foreground(&self) -> Option<Pid> {
        tcgetpgrp(&self.0).ok()
    }

    /// Whether CMD gets the foreground as it starts. In a pipeline it does
    /// not: another member of the group may need it (`lock NAME -- CMD | less`).
    /// If CMD then does read the terminal it is stopped for it, and gets it.
    pub(super) fn is_for_cmd(&self) -> bool {
        self.is_ours() && std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
    }

    /// Brings a group to the foreground. That it cannot be done is no reason
    /// not to run CMD: it is then one in the background.
    pub(super) fn give(&self, group: Pid) {
        let mut mask = SigSet::empty();
        mask.add(NixSignal::SIGTTOU);
        let blocked = mask.thread_block();
        let _ = tcsetpgrp(&self.0, group);
        if blocked.is_ok() {
            let _ = mask.thread_unblock();
        }
    }

    /// Takes the foreground from a workload that is gone, unless somebody else
    /// has it: the shell, or another job.
    pub(super) fn take_back(&self) {
        let nobodys = |group| test_kill_process_group(group).is_err();
        if let Some(own) = Pid::from_raw(own_group())
            && self.foreground().is_some_and(nobodys)
        {
            self.give(own);
        }
    }
}

/// Tells when this process goes on after it was stopped.
#[derive(Debug)]
pub(super) struct Continued {
    reader: UnixStream,
    handler: SigId,
}

impl Continued {
    /// Listens from now on. Inside a tokio runtime.
    pub(super) fn listen() -> io::Result<Self> {
        let (reader, writer) = StdUnixStream::pair()?;
        reader.set_nonblocking(true)?;
        Ok(Self {
            handler: pipe::register(SIGCONT, writer)?,
            reader: UnixStream::from_std(reader)?,
        })
    }

    /// The next time.
    pub(super) async fn next(&mut self) {
        // It can fail only with the event loop.
        let _ = self.reader.readable().await;
        let _ = self.reader.try_read(&mut [0; 64]);
    }
}

impl Drop for Continued {
    fn drop(&mut self) {
        unregister(self.handler);
    }
}
