use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tracing::{error, info};

use leasehold_core::election::ResourceName;
use leasehold_host::cause::not_executable;
use leasehold_host::duration::shown;
use leasehold_host::log::{LineFormat, Stderr};
use leasehold_host::terminal::folded;

/// Messages about one lock, on standard error: as text, or through the log if the log is JSON.
/// Drops lines that would block, because a stopped reader must not block a waiter or a holder.
#[derive(Clone)]
pub(super) struct JobMessages {
    lock: ResourceName,
    format: LineFormat,
    pub(super) quiet: bool,
    stderr: Arc<Stderr>,
    newest: NewestError,
}

/// The newest message about a failure, for the exception that the parent program raises.
#[derive(Clone, Default)]
pub(super) struct NewestError(Arc<Mutex<String>>);

impl NewestError {
    fn set(&self, what: &str) {
        let mut newest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        what.clone_into(&mut newest);
    }

    pub(super) fn text(&self) -> String {
        let newest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        newest.clone()
    }
}

impl JobMessages {
    /// If `quiet` is true, nothing is printed when others hold the lock or have done the work.
    pub(super) fn new(
        lock: &ResourceName,
        format: LineFormat,
        quiet: bool,
        stderr: Arc<Stderr>,
        newest: &NewestError,
    ) -> Self {
        Self {
            lock: lock.clone(),
            format,
            quiet,
            stderr,
            newest: newest.clone(),
        }
    }

    /// True if log lines have the form of this command's messages. In this case, a message replaces
    /// a longer log line.
    pub(super) const fn is_plain(&self) -> bool {
        matches!(self.format, LineFormat::Plain(_))
    }

    pub(super) fn is_json(&self) -> bool {
        self.format == LineFormat::Json
    }

    pub(super) fn say(&self, what: &str) {
        self.newest.set(what);
        if self.is_json() {
            error!(lock = %self.lock, "{what}");
        } else {
            self.print(what);
        }
    }

    /// Forgets the conflicts of earlier attempts.
    pub(super) fn forget_conflicts(&self) {
        self.newest.set("");
    }

    /// Reports that others hold the lock or did the work, which is normal if several hosts start
    /// one job.
    pub(super) fn left_to_others(&self, what: &str) {
        self.newest.set(what);
        match (self.quiet, self.is_json()) {
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
        let mut message = format!("{}: {what}", prefix(&self.lock));
        if io::stderr().is_terminal() {
            message = folded(&message);
        }
        message.push('\n');
        // If standard error cannot be written, the exit code alone reports the result.
        self.stderr.write_line(message.as_bytes());
    }
}

pub(super) fn prefix(lock: &ResourceName) -> String {
    format!("leasehold: lock {lock}")
}

fn place(token: i64, slot: Option<u32>) -> String {
    let slot = slot.map(|slot| format!(", slot {slot}"));
    format!("token {token}{}", slot.unwrap_or_default())
}
