//! What `leasehold lock` says to whoever started it.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};

use tracing::error;

use crate::cause::not_executable;
use crate::election::LeaseName;

/// Says what becomes of one lock, on standard error: as text, or in the log
/// where that is JSON, so that a collector of logs finds no other lines.
///
/// It may wait for whoever reads them: not for what is said while the lock is held.
#[derive(Debug, Clone)]
pub(super) struct Voice {
    lock: LeaseName,
    json: bool,
}

impl Voice {
    /// `json`: the log was started, and writes JSON.
    pub(super) fn new(lock: LeaseName, json: bool) -> Self {
        Self { lock, json }
    }

    /// Why the command ends as it does.
    pub(super) fn say(&self, what: &str) {
        if self.json {
            error!(lock = %self.lock, "{what}");
        } else {
            self.print(what);
        }
    }

    /// Why the command never ran.
    pub(super) fn cannot_execute(&self, command: &[OsString], error: &io::Error) {
        let program = command.first().cloned().unwrap_or_default();
        let why = not_executable(&program, error);
        self.say(&format!("cannot execute {}: {why}", program.display()));
    }

    /// On whom it waits, for a person at a terminal.
    pub(super) fn print(&self, what: &str) {
        // Where nobody can read it, the exit code tells.
        let _ = writeln!(io::stderr().lock(), "leasehold: lock {}: {what}", self.lock);
    }

    /// True where standard error is a terminal and the log is text.
    pub(super) fn at_terminal(&self) -> bool {
        !self.json && io::stderr().is_terminal()
    }
}
