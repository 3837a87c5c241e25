//! Lists the direct children of this process without allocating, because memory may be exhausted. A
//! subreaper adopts the children of a killed process, so killing proceeds in rounds. A child's id
//! is not reused until this process reaps the child, so no unrelated process is signalled.

use std::ffi::CStr;
use std::fmt;
use std::mem::MaybeUninit;

use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, RawDir, openat};
use rustix::io::{Errno, read, retry_on_intr};
use rustix::process::{Pid, WaitId, WaitIdOptions, getpid, waitid};

use super::groups;
use super::stack_text::padded;
use super::survivors::Stat;

/// The longest path is `/proc/self/task/<tid>/children`, with an id of at most seven digits.
const PATH_MAX: usize = 64;
const BUFFER: usize = 4096;
/// A stat file has 52 numbers and a name of at most 64 bytes.
const STAT_MAX: usize = 1024;

#[derive(Debug)]
pub(super) struct Children {
    /// True if the kernel lists children (CONFIG_PROC_CHILDREN). Otherwise, all of /proc is
    /// searched.
    listed: bool,
    names: [MaybeUninit<u8>; BUFFER],
    text: [u8; BUFFER],
}

impl Children {
    pub(super) fn new() -> Self {
        let own = open(
            format_args!("/proc/self/task/{}/children", own_id()),
            OFlags::empty(),
        );
        Self {
            listed: own.is_ok(),
            names: [MaybeUninit::uninit(); BUFFER],
            text: [0; BUFFER],
        }
    }

    pub(super) fn each(&mut self, mut visit: impl FnMut(Pid)) -> Result<(), Errno> {
        if self.listed {
            self.each_listed(&mut visit)
        } else {
            self.each_found(&mut visit)
        }
    }

    /// Reads the lists of all threads, because a child belongs to the thread that started it.
    fn each_listed(&mut self, visit: &mut impl FnMut(Pid)) -> Result<(), Errno> {
        let tasks = open(format_args!("/proc/self/task"), OFlags::DIRECTORY)?;
        let mut names = RawDir::new(&tasks, &mut self.names);
        while let Some(entry) = names.next() {
            let Some(task) = number(entry?.file_name()) else {
                continue;
            };
            let name = format_args!("/proc/self/task/{task}/children");
            // If the thread has ended, its children now belong to another thread.
            let Ok(file) = open(name, OFlags::empty()) else {
                continue;
            };
            let mut child = 0;
            loop {
                let length = retry_on_intr(|| read(&file, &mut self.text))?;
                for byte in &self.text[..length] {
                    // An id may be split at the end of the buffer.
                    if byte.is_ascii_digit() {
                        child = child * 10 + i32::from(byte - b'0');
                    } else if let Some(pid) = Pid::from_raw(std::mem::take(&mut child)) {
                        visit(pid);
                    }
                }
                if length == 0 {
                    break;
                }
            }
        }
        Ok(())
    }

    fn each_found(&mut self, visit: &mut impl FnMut(Pid)) -> Result<(), Errno> {
        let own = own_id();
        let processes = open(format_args!("/proc"), OFlags::DIRECTORY)?;
        let mut names = RawDir::new(&processes, &mut self.names);
        while let Some(entry) = names.next() {
            let Some(process) = number(entry?.file_name()) else {
                continue;
            };
            let stat = stat_of(process, &mut self.text);
            if stat.is_some_and(|stat| stat.parent == own) {
                Pid::from_raw(process).into_iter().for_each(&mut *visit);
            }
        }
        Ok(())
    }
}

fn stat_of(process: i32, text: &mut [u8]) -> Option<Stat> {
    let file = open(format_args!("/proc/{process}/stat"), OFlags::empty()).ok()?;
    let length = retry_on_intr(|| read(&file, &mut *text)).ok()?;
    Stat::parse(&text[..length])
}

/// Returns the start time of a child, in clock ticks since boot, if it can be read.
pub(super) fn started(child: Pid) -> Option<u64> {
    Some(stat_of(groups::number(child), &mut [0; STAT_MAX])?.started)
}

pub(super) fn reap(child: Pid) -> bool {
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    !matches!(waitid(WaitId::Pid(child), ended), Ok(None))
}

fn own_id() -> i32 {
    groups::number(getpid())
}

fn number(name: &CStr) -> Option<i32> {
    name.to_str().ok()?.parse().ok()
}

fn open(path: fmt::Arguments<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
    let path = padded::<PATH_MAX>(0, path);
    let path = CStr::from_bytes_until_nul(&path).unwrap_or_default();
    let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC;
    openat(CWD, path, flags, Mode::empty())
}

#[cfg(test)]
mod tests;
