//! Limits the CPU time of processes (cgroup version 1 or 2).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;

use crate::pid;

/// Mount points of the CPU controller in both versions of cgroup.
const ROOTS: [(&str, Version); 2] = [
    ("/sys/fs/cgroup/cpu", Version::One),
    ("/sys/fs/cgroup", Version::Two),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A group of processes with limited CPU time. Dropping this value removes the limit.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    root: &'static str,
}

impl Cgroup {
    /// Creates a group limited to this percentage of a core in each period. The kernel's default
    /// period is 100 ms, and the longest is 1 s.
    ///
    /// # Errors
    /// If the CPU controller is unavailable. The error is the reason.
    pub fn new(name: &str, percent: u32, period: Duration) -> Result<Self, String> {
        let period = period.as_micros();
        let quota = period * u128::from(percent) / 100;
        let mut reasons = Vec::new();
        for (root, version) in ROOTS {
            let path =
                Path::new(root).join(format!("leasehold-testbed-{}-{name}", std::process::id()));
            let made = fs::create_dir(&path).and_then(|()| match version {
                Version::One => fs::write(path.join("cpu.cfs_period_us"), period.to_string())
                    .and_then(|()| fs::write(path.join("cpu.cfs_quota_us"), quota.to_string())),
                Version::Two => fs::write(path.join("cpu.max"), format!("{quota} {period}")),
            });
            match made {
                Ok(()) => return Ok(Self { path, root }),
                Err(error) => {
                    let _ = fs::remove_dir(&path);
                    reasons.push(format!("{root}: {error}"));
                }
            }
        }
        Err(reasons.join("; "))
    }

    /// Adds a process to the group. The process's future children join too.
    pub fn add(&self, pid: u32) {
        // The process may have exited.
        let _ = fs::write(self.path.join("cgroup.procs"), pid.to_string());
    }

    /// Returns the directory of the group.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Kills all processes of the group, as a container runtime does.
    pub fn kill(&self) {
        loop {
            let members = fs::read_to_string(self.path.join("cgroup.procs"));
            let members = members.unwrap_or_default();
            if members.is_empty() {
                return;
            }
            let numbers = members.lines().filter_map(|line| line.parse().ok());
            numbers.for_each(|process| pid::signal_if_there(process, Signal::KILL));
            std::thread::yield_now();
        }
    }

    /// Returns the number of periods in which the processes have used up their CPU time.
    ///
    /// # Panics
    /// If the group does not exist.
    pub fn throttled(&self) -> u64 {
        let stat = fs::read_to_string(self.path.join("cpu.stat")).expect("statistics of the group");
        let mut lines = stat.lines();
        let count = lines.find_map(|line| line.strip_prefix("nr_throttled "));
        count.expect("a count").parse().expect("a number")
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let members = fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default();
        for pid in members.lines() {
            let _ = fs::write(Path::new(self.root).join("cgroup.procs"), pid);
        }
        let _ = fs::remove_dir(&self.path);
    }
}
