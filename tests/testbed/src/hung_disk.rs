//! A disk that hangs: a FUSE file system whose server never answers the kernel, so every call
//! blocks.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::{Launch, Process};

/// Maximum wait for the mount, which takes a few milliseconds.
const MOUNT_MAX: Duration = Duration::from_secs(10);

/// A hung file system, mounted over a directory and unmounted on drop. Unmounting makes blocked
/// calls fail and makes the directory accessible again.
#[derive(Debug)]
pub struct HungDisk {
    path: PathBuf,
    /// The process that holds /dev/fuse open and never reads the kernel's requests.
    server: Process,
}

impl HungDisk {
    /// Mounts a hung file system over `directory`. Returns `None` if this user may not mount, or if
    /// the machine does not have FUSE.
    ///
    /// # Panics
    /// If the helper neither mounts nor exits.
    pub fn over(directory: &Path) -> Option<Self> {
        const SCRIPT: &str = "exec 3<>/dev/fuse && \
            mount -i -t fuse -o fd=3,rootmode=40000,user_id=0,group_id=0 hung \"$1\" && \
            exec sleep 600";
        let path = directory.canonicalize().unwrap();
        let launch = Launch::new("/bin/sh").arguments(["-c", SCRIPT, "sh"]);
        let server = launch.argument(path.as_os_str()).start().unwrap();
        let begun = Instant::now();
        loop {
            if is_mounted(&path) {
                return Some(Self { path, server });
            }
            if server.exit_status().is_some() {
                return None;
            }
            assert!(begun.elapsed() < MOUNT_MAX, "not mounted");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for HungDisk {
    fn drop(&mut self) {
        self.server.kill();
        let unmounted = Command::new("umount").arg("-l").arg(&self.path).status();
        assert!(std::thread::panicking() || unmounted.is_ok_and(|status| status.success()));
    }
}

fn is_mounted(path: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let mut points = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ');
        (words.next() == Some("hung"))
            .then(|| words.next())
            .flatten()
    });
    points.any(|point| Path::new(point) == path)
}
