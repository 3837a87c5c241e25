//! Limits the CPU time of processes (cgroup version 1 or 2).

use std::fs;
use std::path::{Path, PathBuf};

/// Mount points of the CPU controller in both versions of cgroup.
const ROOTS: [(&str, Version); 2] = [
    ("/sys/fs/cgroup/cpu", Version::One),
    ("/sys/fs/cgroup", Version::Two),
];
const PERIOD_US: u32 = 100_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

#[derive(Debug)]
pub(crate) struct Cgroup {
    path: PathBuf,
    root: &'static str,
}

impl Cgroup {
    /// Creates a group limited to this percentage of a core. Returns the reason if the CPU
    /// controller is unavailable.
    pub(crate) fn new(name: &str, percent: u32) -> Result<Self, String> {
        let quota = PERIOD_US / 100 * percent;
        let mut reasons = Vec::new();
        for (root, version) in ROOTS {
            let path =
                Path::new(root).join(format!("leasehold-nemesis-{}-{name}", std::process::id()));
            let made = fs::create_dir(&path).and_then(|()| match version {
                Version::One => fs::write(path.join("cpu.cfs_period_us"), PERIOD_US.to_string())
                    .and_then(|()| fs::write(path.join("cpu.cfs_quota_us"), quota.to_string())),
                Version::Two => fs::write(path.join("cpu.max"), format!("{quota} {PERIOD_US}")),
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
    pub(crate) fn add(&self, pid: u32) {
        // The process may have exited.
        let _ = fs::write(self.path.join("cgroup.procs"), pid.to_string());
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
