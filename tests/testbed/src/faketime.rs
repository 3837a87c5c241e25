//! Processes whose wall clock is wrong, or jumps.
//!
//! The library intercepts libc's clock functions. Measured with version 0.9.10
//! of Debian 12 and `+1h`: without `FAKETIME_DONT_FAKE_MONOTONIC` it sets
//! CLOCK_REALTIME, CLOCK_MONOTONIC and CLOCK_BOOTTIME all to the same faked
//! wall time; with it, MONOTONIC and BOOTTIME are true and only REALTIME is
//! faked, which is what these fixtures do. A program that reads clocks by
//! system calls of its own, as `rustix` does, sees true clocks in any case;
//! the standard library's `SystemTime` goes through libc and is faked.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::{Failure, Scratch};

const NAME: &str = "faketime/libfaketimeMT.so.1";
const DIRECTORIES: [&str; 4] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
];

/// Environment variables that give a process a wall clock of its own.
#[derive(Debug, Clone)]
pub struct FakeClock {
    variables: Vec<(String, OsString)>,
}

impl FakeClock {
    /// A clock that is off by a constant, such as `+1h` or `-30m`.
    ///
    /// # Errors
    /// When libfaketime is not installed, with the command that installs it.
    pub fn offset(offset: &str) -> Result<Self, Failure> {
        let mut clock = Self::base()?;
        clock.variables.push(("FAKETIME".to_owned(), offset.into()));
        Ok(clock)
    }

    /// The variables, to be given to a process.
    pub fn variables(&self) -> &[(String, OsString)] {
        &self.variables
    }

    fn base() -> Result<Self, Failure> {
        let library = library()?;
        Ok(Self {
            variables: vec![
                ("LD_PRELOAD".to_owned(), library.into()),
                ("FAKETIME_DONT_FAKE_MONOTONIC".to_owned(), "1".into()),
            ],
        })
    }
}

/// A wall clock that jumps when told to. Any number of processes can share it.
#[derive(Debug)]
pub struct JumpingClock {
    scratch: Scratch,
    clock: FakeClock,
}

impl JumpingClock {
    /// A clock that is right until the first jump.
    ///
    /// # Errors
    /// When libfaketime is not installed, with the command that installs it.
    pub fn new() -> Result<Self, Failure> {
        let scratch = Scratch::new();
        let mut clock = FakeClock::base()?;
        let file = file_in(scratch.path());
        clock
            .variables
            .push(("FAKETIME_TIMESTAMP_FILE".to_owned(), file.into()));
        // Else the file is read again only every ten seconds.
        clock
            .variables
            .push(("FAKETIME_NO_CACHE".to_owned(), "1".into()));
        let jumping = Self { scratch, clock };
        jumping.jump("+0s");
        Ok(jumping)
    }

    /// Sets the offset to the true time, such as `+1h` or `-30m`, at once.
    pub fn jump(&self, offset: &str) {
        // By renaming: a process that reads at this moment sees old or new.
        let next = self.scratch.path().join("next");
        std::fs::write(&next, offset).expect("the clock's file can be written");
        std::fs::rename(&next, file_in(self.scratch.path())).expect("and renamed");
    }

    /// What makes a process use this clock.
    pub fn clock(&self) -> &FakeClock {
        &self.clock
    }
}

fn file_in(directory: &Path) -> PathBuf {
    directory.join("faketime")
}

fn library() -> Result<PathBuf, Failure> {
    let found = DIRECTORIES
        .iter()
        .map(|d| Path::new(d).join(NAME))
        .find(|path| path.exists());
    found.ok_or_else(|| {
        Failure::new("libfaketimeMT.so.1 is missing; on Debian: apt-get install -y faketime")
    })
}
