use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::time::Duration;

use tracing::{error, info};

use leasehold_core::election::ResourceName;
use leasehold_host::cause::not_executable;
use leasehold_host::duration::shown;
use leasehold_host::log::Stderr;
use leasehold_host::terminal::folded;

/// Messages about one lock, on standard error: as text, or through the log if the log is JSON.
/// Drops lines that would block, because a stopped reader must not stop a wait or a held lock.
#[derive(Clone)]
pub(super) struct JobMessages {
    lock: ResourceName,
    pub(super) json: bool,
    pub(super) quiet: bool,
    stderr: Arc<Stderr>,
}

impl JobMessages {
    /// `quiet` suppresses messages that others hold the lock or have done the work.
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

    /// Reports that others hold the lock or did the work: normal if several hosts start one job.
    pub(super) fn left_to_others(&self, what: &str) {
        match (self.quiet, self.json) {
            (true, _) => {}
            (false, true) => info!(lock = %self.lock, "{what}"),
            (false, false) => self.print(what),
        }
    }

    pub(super) fn cannot_execute(&self, command: &[OsString], error: &io::Error) {
        let program = command.first().cloned().unwrap_or_default();
        let why = not_executable(&program, error);
        self.say(&format!("cannot execute {}: {why}", program.display()));
    }

    pub(super) fn acquired(&self, token: i64, slot: Option<u32>, waited: Duration) {
        let (place, waited) = (place(token, slot), shown(waited));
        self.print(&format!("acquired after {waited} ({place})"));
    }

    pub(super) fn held(&self, token: i64, slot: Option<u32>, patience: &str) {
        let place = place(token, slot);
        self.print(&format!(
            "held ({place}){patience}\npress Ctrl-D or Ctrl-C to release it"
        ));
    }

    pub(super) fn print(&self, what: &str) {
        let mut message = format!("leasehold: lock {}: {what}", self.lock);
        if io::stderr().is_terminal() {
            message = folded(&message);
        }
        message.push('\n');
        // If standard error cannot be written, the exit code alone reports the result.
        self.stderr.write_line(message.as_bytes());
    }

    pub(super) fn at_terminal(&self) -> bool {
        !self.json && io::stderr().is_terminal()
    }
}

fn place(token: i64, slot: Option<u32>) -> String {
    let slot = slot.map(|slot| format!(", slot {slot}"));
    format!("token {token}{}", slot.unwrap_or_default())
}
