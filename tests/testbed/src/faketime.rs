//! Runs processes with a wall clock that is wrong or jumps.
//!
//! libfaketime intercepts libc's clock functions. By default it sets CLOCK_REALTIME,
//! CLOCK_MONOTONIC and CLOCK_BOOTTIME to the same faked wall time (measured with version 0.9.10 of
//! Debian 12 and `+1h`). These fixtures set `FAKETIME_DONT_FAKE_MONOTONIC`, so that libfaketime
//! fakes only CLOCK_REALTIME. Programs that read clocks with direct system calls, as `rustix` does,
//! always see true clocks. The standard library's `SystemTime` calls libc, so it is faked.

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

/// Environment variables that give a process its own wall clock.
#[derive(Debug, Clone)]
pub struct FakeClock {
    variables: Vec<(String, OsString)>,
}

impl FakeClock {
    /// Returns a clock with a constant offset, such as `+1h` or `-30m`.
    ///
    /// # Errors
    /// If libfaketime is not installed. The error names the command that installs it.
    pub fn offset(offset: &str) -> Result<Self, Failure> {
        let mut clock = Self::base()?;
        clock.variables.push(("FAKETIME".to_owned(), offset.into()));
        Ok(clock)
    }

    /// Returns the variables to set in a process.
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

/// A wall clock that jumps on request. Several processes can share it.
#[derive(Debug)]
pub struct JumpingClock {
    scratch: Scratch,
    clock: FakeClock,
}

impl JumpingClock {
    /// Returns a clock that is correct until the first jump.
    ///
    /// # Errors
    /// If libfaketime is not installed. The error names the command that installs it.
    pub fn new() -> Result<Self, Failure> {
        let scratch = Scratch::new();
        let mut clock = FakeClock::base()?;
        let file = file_in(scratch.path());
        clock
            .variables
            .push(("FAKETIME_TIMESTAMP_FILE".to_owned(), file.into()));
        // By default, libfaketime reads the file only every ten seconds.
        clock
            .variables
            .push(("FAKETIME_NO_CACHE".to_owned(), "1".into()));
        let jumping = Self { scratch, clock };
        jumping.jump("+0s");
        Ok(jumping)
    }

    /// Sets the offset from the true time, such as `+1h` or `-30m`, immediately.
    pub fn jump(&self, offset: &str) {
        // Rename, so that a concurrent reader sees either the old or the new offset.
        let next = self.scratch.path().join("next");
        std::fs::write(&next, offset).expect("write the clock's file");
        std::fs::rename(&next, file_in(self.scratch.path())).expect("and renamed");
    }

    /// Returns the variables that make a process use this clock.
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
