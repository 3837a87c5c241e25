//! Limits the CPU time and the memory of processes (cgroup version 1 or 2).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;

use crate::pid;

const ROOT: &str = "/sys/fs/cgroup";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A group of processes with limited resources. Dropping this value removes the limit.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    root: PathBuf,
    version: Version,
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
        Self::create("cpu", name, |group| match group.version {
            Version::One => {
                group.write("cpu.cfs_period_us", period)?;
                group.write("cpu.cfs_quota_us", quota)
            }
            Version::Two => group.write("cpu.max", format!("{quota} {period}")),
        })
    }

    /// Creates a group limited to this many bytes of memory, without swap.
    ///
    /// # Errors
    /// If the memory controller is unavailable. The error is the reason.
    pub fn of_memory(name: &str, bytes: u64) -> Result<Self, String> {
        Self::create("memory", name, |group| {
            let (limit, swap, swapped) = match group.version {
                Version::One => (
                    "memory.limit_in_bytes",
                    "memory.memsw.limit_in_bytes",
                    bytes,
                ),
                Version::Two => ("memory.max", "memory.swap.max", 0),
            };
            group.write(limit, bytes)?;
            // A kernel without swap does not have this file.
            let _ = group.write(swap, swapped);
            Ok(())
        })
    }

    /// Makes the kernel kill all processes of the group if their memory runs out, as kubelet
    /// configures containers. Otherwise, the kernel kills one process. Version 1 cannot do this: the
    /// kernel only stops the processes then, until the caller kills them ([`Self::kill`]).
    ///
    /// # Panics
    /// If the kernel refuses this.
    #[must_use]
    pub fn killed_together(self) -> Self {
        let file = match self.version {
            Version::One => "memory.oom_control",
            Version::Two => "memory.oom.group",
        };
        self.write(file, 1).expect(file);
        self
    }

    /// Creates a group below the mount point of the controller, which is a separate hierarchy in
    /// version 1.
    fn create(
        controller: &str,
        name: &str,
        limit: impl Fn(&Self) -> io::Result<()>,
    ) -> Result<Self, String> {
        let mut reasons = Vec::new();
        for (root, version) in [
            (Path::new(ROOT).join(controller), Version::One),
            (PathBuf::from(ROOT), Version::Two),
        ] {
            let group = Self {
                path: root.join(format!("leasehold-testbed-{}-{name}", std::process::id())),
                root,
                version,
            };
            match fs::create_dir(&group.path).and_then(|()| limit(&group)) {
                Ok(()) => return Ok(group),
                Err(error) => reasons.push(format!("{}: {error}", group.root.display())),
            }
        }
        Err(reasons.join("; "))
    }

    fn write(&self, file: &str, value: impl ToString) -> io::Result<()> {
        // Without O_CREAT, because a hierarchy that is not mounted is an ordinary directory.
        let file = fs::OpenOptions::new()
            .write(true)
            .open(self.path.join(file));
        io::Write::write_all(&mut file?, value.to_string().as_bytes())
    }

    /// Adds a process to the group. The process's future children join too.
    pub fn add(&self, pid: u32) {
        // The process may have exited.
        let _ = self.write("cgroup.procs", pid);
    }

    /// Returns the directory of the group.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Kills all processes of the group, as a container runtime does.
    pub fn kill(&self) {
        self.until_empty(|process| pid::signal_if_there(process, Signal::KILL));
    }

    /// Removes all processes from the group, so that they are not limited.
    pub fn release(&self) {
        let outside = self.root.join("cgroup.procs");
        self.until_empty(|process| {
            // The process may have exited.
            let _ = fs::write(&outside, process.to_string());
        });
    }

    /// Repeats the action for each process, because a process may have forked.
    fn until_empty(&self, action: impl Fn(u32)) {
        loop {
            let members = fs::read_to_string(self.path.join("cgroup.procs"));
            let members = members.unwrap_or_default();
            if members.is_empty() {
                return;
            }
            let numbers = members.lines().filter_map(|line| line.parse().ok());
            numbers.for_each(&action);
            std::thread::yield_now();
        }
    }

    /// Returns the number of periods in which the processes have used up their CPU time.
    ///
    /// # Panics
    /// If the group does not exist.
    pub fn throttled(&self) -> u64 {
        self.count("cpu.stat", "nr_throttled")
    }

    /// Returns true if the kernel has killed a process because memory ran out, or has stopped the
    /// processes ([`Self::killed_together`]).
    ///
    /// # Panics
    /// If the group does not exist.
    pub fn ran_out_of_memory(&self) -> bool {
        match self.version {
            Version::One => ["oom_kill", "under_oom"]
                .iter()
                .any(|name| self.count("memory.oom_control", name) > 0),
            Version::Two => self.count("memory.events", "oom_kill") > 0,
        }
    }

    fn count(&self, file: &str, name: &str) -> u64 {
        let counts = fs::read_to_string(self.path.join(file)).expect("statistics of the group");
        let mut words = counts.lines().map(str::split_whitespace);
        let count = words.find_map(|mut line| (line.next()? == name).then(|| line.next())?);
        count.expect("a count").parse().expect("a number")
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        self.release();
        let _ = fs::remove_dir(&self.path);
    }
}
