//! A disk that can hang and continue: an ext4 file system in a file, which the kernel can freeze.
//! Unlike a [`crate::HungDisk`], a frozen disk also blocks writes to files that are already open.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::{Scratch, skip};

/// A mounted disk, unmounted on drop.
#[derive(Debug)]
pub struct FreezableDisk {
    path: PathBuf,
    _scratch: Scratch,
}

/// A frozen disk: all writes block until this value is dropped.
#[derive(Debug)]
pub struct Frozen {
    /// A process that thaws the disk when its standard input closes, even if the test is killed.
    thawer: Child,
}

impl FreezableDisk {
    /// Creates and mounts a disk. Returns `None` and prints a message if this user may not mount
    /// file systems, or if the machine has no loop devices.
    ///
    /// # Panics
    /// If there is no space for the disk.
    pub fn new() -> Option<Self> {
        const SCRIPT: &str = "truncate -s 8M \"$1/image\" && mkfs.ext4 -q \"$1/image\" && \
            mkdir \"$1/disk\" && mount -o loop \"$1/image\" \"$1/disk\"";
        let scratch = Scratch::new();
        let mut script = Command::new("/bin/sh");
        script.args(["-c", SCRIPT, "sh"]).arg(scratch.path());
        let made = script.output().expect("a shell");
        if !made.status.success() {
            skip("needs root and a loop device, to mount a disk that can be frozen");
            return None;
        }
        Some(Self {
            path: scratch.path().join("disk"),
            _scratch: scratch,
        })
    }

    /// Returns the directory where the disk is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Blocks all writes until the result is dropped.
    ///
    /// # Panics
    /// If the disk cannot be frozen.
    pub fn freeze(&self) -> Frozen {
        const SCRIPT: &str = "fsfreeze -f \"$1\" && { echo frozen; read -r line; \
            fsfreeze -u \"$1\"; }";
        let mut script = Command::new("/bin/sh");
        script.args(["-c", SCRIPT, "sh"]).arg(&self.path);
        let script = script.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut thawer = script.spawn().expect("a shell");
        let mut line = String::new();
        let output = thawer.stdout.take().expect("standard output is a pipe");
        let read = BufReader::new(output).read_line(&mut line);
        assert!(read.is_ok() && line == "frozen\n", "not frozen: {line:?}");
        Frozen { thawer }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        drop(self.thawer.stdin.take());
        let thawed = self.thawer.wait();
        assert!(std::thread::panicking() || thawed.is_ok_and(|status| status.success()));
    }
}

impl Drop for FreezableDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(&self.path).status();
        assert!(std::thread::panicking() || unmounted.is_ok_and(|status| status.success()));
    }
}
