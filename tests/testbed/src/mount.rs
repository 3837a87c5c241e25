//! Mounts file systems for one test. The user must be root.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::{Scratch, skip};

/// A mount, unmounted on drop.
#[derive(Debug)]
pub struct Mount {
    path: PathBuf,
    scratch: Option<Scratch>,
}

impl Mount {
    /// Mounts a new in-memory disk of 64 kB. Returns `None` and prints a message if this user may
    /// not mount.
    ///
    /// # Panics
    /// If no directory can be created.
    pub fn small_disk() -> Option<Self> {
        Self::disk("64k")
    }

    /// Mounts a new in-memory disk of this size, such as `600m`. Returns `None` and prints a
    /// message if this user may not mount.
    ///
    /// # Panics
    /// If no directory can be created.
    pub fn disk(size: &str) -> Option<Self> {
        let scratch = Scratch::new();
        let path = scratch.path().join("disk");
        fs::create_dir(&path).expect("create a directory");
        let size = format!("size={size}");
        let arguments = ["-t", "tmpfs", "-o", &size, "leasehold-test"];
        Self::mounted(&arguments, path, Some(scratch))
    }

    /// Mounts a directory over itself. Returns `None` and prints a message if this user may not
    /// mount.
    ///
    /// # Panics
    /// If the path is not valid UTF-8.
    pub fn over(directory: &Path) -> Option<Self> {
        let place = directory.to_str().expect("a test's path is valid UTF-8");
        Self::mounted(&["--bind", place], directory.to_owned(), None)
    }

    fn mounted(arguments: &[&str], path: PathBuf, scratch: Option<Scratch>) -> Option<Self> {
        if !mounts(arguments, &path) {
            skip("needs root, to mount");
            return None;
        }
        Some(Self { path, scratch })
    }

    /// Returns the directory where the file system is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the mount read-only. Returns false if the kernel refuses, because a process has a file
    /// open for writing.
    pub fn make_read_only(&self) -> bool {
        let only_here = self.scratch.is_none();
        let options = if only_here {
            "remount,ro,bind"
        } else {
            "remount,ro"
        };
        mounts(&["-o", options], &self.path)
    }

    /// Fills the remaining space.
    ///
    /// # Panics
    /// If the filler file cannot be opened.
    pub fn fill(&self) {
        let filler = File::options()
            .append(true)
            .create(true)
            .open(self.filler());
        let mut filler = filler.expect("create a file on a full disk");
        // Write smaller blocks last, so that no space remains.
        for block in [vec![0; 1 << 20], vec![0; 512]] {
            while filler.write_all(&block).is_ok() {}
        }
    }

    /// Frees the space that was filled.
    ///
    /// # Panics
    /// If the space was not filled.
    pub fn empty(&self) {
        fs::remove_file(self.filler()).expect("the disk was filled");
    }

    fn filler(&self) -> PathBuf {
        self.path.join("filler")
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(&self.path).status();
        assert!(std::thread::panicking() || unmounted.is_ok_and(|status| status.success()));
    }
}

/// Runs a program that cannot read the boot id (EIO). In production, the read may fail with EMFILE.
/// Returns `None` and prints a message if this user may not mount.
///
/// # Panics
/// If `unshare` is not installed.
pub fn without_boot_id(program: &[&str]) -> Option<Output> {
    // Mount /proc/PID/mem over the boot id. A process has no memory at address 0, so reads fail.
    let script = "mount --bind /proc/$$/mem /proc/sys/kernel/random/boot_id && exec \"$@\"";
    let run = |program: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--map-root-user", "sh", "-c", script, "sh"]);
        command.args(program).output().expect("unshare")
    };
    if !run(&["true"]).status.success() {
        skip("needs user namespaces, or root");
        return None;
    }
    Some(run(program))
}

fn mounts(arguments: &[&str], place: &Path) -> bool {
    let mounted = Command::new("mount").args(arguments).arg(place).output();
    mounted.is_ok_and(|output| output.status.success())
}
