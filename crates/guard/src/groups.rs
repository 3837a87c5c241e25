//! Process groups and sessions, by number; 0 for a group or session outside of this PID namespace
//! (`unshare --pid`, `nsenter`). rustix cannot represent 0, so these functions use nix.

use nix::unistd::{getpgid, getpgrp, getsid};
use rustix::process::Pid;

/// Returns the process group of this process.
pub fn own_group() -> i32 {
    getpgrp().as_raw()
}

pub(super) fn group_of(process: Pid) -> Option<i32> {
    Some(getpgid(Some(named(process))).ok()?.as_raw())
}

pub(super) fn own_session() -> Option<i32> {
    Some(getsid(None).ok()?.as_raw())
}

pub(super) fn session_of(process: Pid) -> Option<i32> {
    Some(getsid(Some(named(process))).ok()?.as_raw())
}

pub(super) fn number(process: Pid) -> i32 {
    process.as_raw_nonzero().get()
}

fn named(process: Pid) -> nix::unistd::Pid {
    nix::unistd::Pid::from_raw(number(process))
}
