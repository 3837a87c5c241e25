//! Process groups and sessions, by number.
//!
//! The number is 0 for one that began outside of this PID namespace: that of
//! process 1 under `unshare --pid`, or of what `nsenter` starts. rustix's
//! process ids have no room for it, and its functions take it for granted that
//! it does not come; so these are nix's.

use nix::unistd::{getpgid, getpgrp, getsid};
use rustix::process::Pid;

/// The group of this process.
pub(super) fn own_group() -> i32 {
    getpgrp().as_raw()
}

/// The group of another one; `None` once it was waited for.
pub(super) fn group_of(process: Pid) -> Option<i32> {
    Some(getpgid(Some(named(process))).ok()?.as_raw())
}

/// The session of this process.
pub(super) fn own_session() -> Option<i32> {
    Some(getsid(None).ok()?.as_raw())
}

/// The session of another one; `None` once it was waited for.
pub(super) fn session_of(process: Pid) -> Option<i32> {
    Some(getsid(Some(named(process))).ok()?.as_raw())
}

/// A process, or the group that it leads, as a number.
pub(super) fn number(process: Pid) -> i32 {
    process.as_raw_nonzero().get()
}

fn named(process: Pid) -> nix::unistd::Pid {
    nix::unistd::Pid::from_raw(number(process))
}
