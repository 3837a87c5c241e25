//! Provides each test with a directory in which its command records events, and with deadlines
//! relative to now.

use std::path::PathBuf;
use std::time::Duration;

use leasehold::clock::boot_now;
use leasehold::workload::{Command, GuardedCommand, Terms};
use tempfile::TempDir;

use crate::stand_in::{Plan, StandIn, guard};

/// Timeout for steps that normally finish much sooner.
pub(crate) const LONG: Duration = Duration::from_secs(30);
/// A guard and a shim start within this time, even on a busy machine.
pub(crate) const STARTS: Duration = Duration::from_millis(2000);
/// Maximum delay between a deadline and the observed end of a process, on a busy machine.
pub(crate) const SEEN_LATE: Duration = Duration::from_secs(5);

/// Returns deadlines: the authority ends `valid` from now, and SIGKILL follows `grace` later.
pub(crate) fn terms(valid: Duration, grace: Duration) -> Terms {
    let valid_until = boot_now() + valid;
    Terms {
        valid_until,
        kill_at: valid_until + grace,
    }
}

pub(crate) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) struct Fixture {
    directory: TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn script(&self, script: &str) -> Command {
        let script = format!(
            "cd {} || exit 99\n{script}",
            self.directory.path().display()
        );
        shell(&script)
    }

    pub(crate) fn start(&self, script: &str) -> GuardedCommand {
        self.start_until(script, terms(LONG, LONG))
    }

    pub(crate) fn start_until(&self, script: &str, terms: Terms) -> GuardedCommand {
        GuardedCommand::start(&self.script(script), terms, None).unwrap()
    }

    /// Starts a stand-in daemon. Returns the stand-in, and the process ids of its command and its
    /// guard.
    pub(crate) async fn stand_in(&self, plan: Plan) -> (StandIn<'_>, u32, u32) {
        let daemon = plan.start(self);
        let command = self.wait_pid("pid").await;
        (daemon, command, guard(self).await)
    }

    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.path(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Waits until a file has `count` complete lines.
    pub(crate) async fn wait_lines(&self, name: &str, count: usize) -> Vec<String> {
        let what = format!("{count} lines of {name}");
        eventually(&what, || {
            let text = std::fs::read_to_string(self.path(name)).unwrap_or_default();
            text.matches('\n').count() >= count
        })
        .await;
        self.lines(name)
    }

    pub(crate) async fn wait_pid(&self, name: &str) -> u32 {
        let lines = self.wait_lines(name, 1).await;
        lines[0].trim().parse().unwrap()
    }
}

pub(crate) fn shell(script: &str) -> Command {
    guarded("/bin/sh").arguments(["-c", script])
}

/// Returns a command whose guard and shim are the binary under test.
pub(crate) fn guarded(program: &str) -> Command {
    Command::new(program).executable(env!("CARGO_BIN_EXE_leasehold"))
}

pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = boot_now() + LONG;
    while !holds() {
        assert!(boot_now() < end, "timed out waiting for: {what}");
        tokio::time::sleep(millis(1)).await;
    }
}
