//! The terminal of the daemon. CMD has its own process group, so keys and input reach CMD only
//! while it is in the foreground. As in a shell, CMD gets the daemon's foreground until CMD is
//! gone.

use std::io::IsTerminal;

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, test_kill_process_group};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

use super::dispositions::without_background_stop;
use super::groups::{number, own_group};

#[derive(Debug)]
pub(super) struct Terminal(OwnedFd);

impl Terminal {
    pub(super) fn of_this_process() -> Option<Self> {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        open("/dev/tty", flags, Mode::empty()).ok().map(Self)
    }

    pub(super) fn is_ours(&self) -> bool {
        self.foreground().map(number) == Some(own_group())
    }

    pub(super) fn foreground(&self) -> Option<Pid> {
        tcgetpgrp(&self.0).ok()
    }

    /// Returns true if CMD starts in the foreground. In a pipeline (`lock NAME -- CMD | less`), CMD
    /// gets the foreground only after a read of the terminal has stopped it.
    pub(super) fn is_for_cmd(&self) -> bool {
        self.is_ours() && std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
    }

    /// Brings a group to the foreground. If this fails, CMD still runs in the background.
    pub(super) fn give(&self, group: Pid) {
        let _ = without_background_stop(|| tcsetpgrp(&self.0, group));
    }

    /// Takes the foreground back after CMD is gone, unless a live process group has it.
    pub(super) fn take_back(&self) {
        let nobodys = |group| test_kill_process_group(group).is_err();
        if let Some(own) = Pid::from_raw(own_group())
            && self.foreground().is_some_and(nobodys)
        {
            self.give(own);
        }
    }
}
