//! Messages of `leasehold lock` to its caller.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::sync::Arc;

use tracing::{error, info};

use leasehold_core::election::ResourceName;
use leasehold_host::cause::not_executable;
use leasehold_host::log::Stderr;

/// Messages about one lock on standard error: as text, or through the log if the log is JSON. Lines
/// that would block are dropped, because a stopped reader must not stop a wait or a held lock.
pub(super) struct JobMessages {
    lock: ResourceName,
    json: bool,
    pub(super) quiet: bool,
    stderr: Arc<Stderr>,
}

impl JobMessages {
    /// `json` is true if the log writes JSON. If `quiet` is true, no message reports that others
    /// hold the lock.
    pub(super) fn new(lock: ResourceName, json: bool, quiet: bool, stderr: Arc<Stderr>) -> Self {
        Self {
            lock,
            json,
            quiet,
            stderr,
        }
    }

    pub(super) fn say(&self, what: &str) {
        if self.json {
            error!(lock = %self.lock, "{what}");
        } else {
            self.print(what);
        }
    }

    /// Reports that others hold the lock. Expected if several hosts start a job that only one runs.
    pub(super) fn held_by_others(&self, what: &str) {
        if !self.quiet {
            self.done_before(what);
        }
    }

    pub(super) fn done_before(&self, what: &str) {
        if self.json {
            info!(lock = %self.lock, "{what}");
        } else {
            self.print(what);
        }
    }

    pub(super) fn cannot_execute(&self, command: &[OsString], error: &io::Error) {
        let program = command.first().cloned().unwrap_or_default();
        let why = not_executable(&program, error);
        self.say(&format!("cannot execute {}: {why}", program.display()));
    }

    pub(super) fn print(&self, what: &str) {
        // If standard error cannot be written, the exit code alone reports the result.
        let line = format!("leasehold: lock {}: {what}\n", self.lock);
        self.stderr.write_line(line.as_bytes());
    }

    pub(super) fn at_terminal(&self) -> bool {
        !self.json && io::stderr().is_terminal()
    }
}
