//! A real `leasehold run` as a process, and its surfaces as a workload or an
//! operator sees them.

mod builder;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

use crate::process::exit_code;
use crate::{Failure, Launch, Process, ReservedPort, Scratch, http};

pub use builder::{DaemonBuilder, DaemonTimings};

/// Fine enough for the hand-off that is measured to take some 5 ms.
const POLL: Duration = Duration::from_millis(2);

/// A running daemon. Ends with SIGKILL when it is dropped.
#[derive(Debug)]
pub struct Daemon {
    identity: String,
    launch: Launch,
    process: Process,
    port: ReservedPort,
    directory: PathBuf,
    scratch: Scratch,
}

impl Daemon {
    /// To start one from the binary at `program`: in the tests of the root
    /// package that is `env!("CARGO_BIN_EXE_leasehold")`.
    pub fn builder(program: impl Into<PathBuf>) -> DaemonBuilder {
        DaemonBuilder::new(program.into())
    }

    /// The identity it was given.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The port of its HTTP surface.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Its status directory.
    pub fn status_directory(&self) -> &Path {
        &self.directory
    }

    /// A private directory of this fixture, which outlives the process: the
    /// log, the URI file, and whatever a test puts there.
    pub fn directory(&self) -> &Path {
        self.scratch.path()
    }

    /// What `status.json` says; `None` while there is none.
    ///
    /// # Panics
    /// When the file is there and is not JSON: it must be replaced atomically.
    pub fn try_status(&self) -> Option<Value> {
        let text = std::fs::read_to_string(self.directory.join("status.json")).ok()?;
        let status = serde_json::from_str(&text);
        Some(status.unwrap_or_else(|error| panic!("status.json is torn: {error}: {text}")))
    }

    /// What `status.json` says.
    ///
    /// # Panics
    /// When there is none.
    pub fn status(&self) -> Value {
        self.try_status()
            .unwrap_or_else(|| panic!("no status.json; the log:\n{}", self.logs()))
    }

    /// Whether the status file says leader to a reader who checks its deadline,
    /// as `leasehold status` does.
    pub fn leads(&self) -> bool {
        self.try_status().is_some_and(|status| leads(&status))
    }

    /// `GET path`: the status and the body of the answer.
    ///
    /// # Errors
    /// When there is no answer, as from a daemon that is stopped or ended.
    pub async fn http(&self, path: &str) -> Result<(u16, String), Failure> {
        http::request(self.port(), "GET", path, &[]).await
    }

    /// A request with any method and headers, without a body.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn http_request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<(u16, String), Failure> {
        http::request(self.port(), method, path, headers).await
    }

    /// One sample of `/metrics`: see [`sample`].
    ///
    /// # Panics
    /// When there is no answer or no such sample.
    pub async fn metric(&self, name: &str) -> f64 {
        let (_, text) = self
            .http("/metrics")
            .await
            .unwrap_or_else(|failure| panic!("{failure}"));
        sample(&text, name).unwrap_or_else(|| panic!("no metric {name} in:\n{text}"))
    }

    /// Puts another connection string into its file, in one step: the daemon
    /// may be reading it.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn replace_uri(&self, uri: &str) {
        let directory = self.scratch.path();
        let new = directory.join("uri.new");
        builder::write_secret(&new, uri);
        std::fs::rename(&new, directory.join(builder::URI_FILE)).expect("a file can be renamed");
    }

    /// Leaves a [detached](DaemonBuilder::detached) daemon up, with its files.
    /// Whoever calls this ends the process, by its id.
    pub fn leave_up(mut self) {
        self.process.leave_up();
        self.scratch.keep();
    }

    /// Asks it to step down and exit (SIGTERM).
    pub fn term(&self) {
        self.signal(Signal::TERM);
    }

    /// Ends it with SIGKILL and waits until the process is gone.
    pub fn kill(&self) {
        self.process.kill();
    }

    /// Freezes it (SIGSTOP).
    pub fn stop(&self) {
        self.process.stop();
    }

    /// Lets it go on after [`stop`](Self::stop).
    pub fn cont(&self) {
        self.signal(Signal::CONT);
    }

    /// Sends any signal.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Waits for its end: the exit code, 128 + n after signal n.
    ///
    /// # Panics
    /// When it still runs after `deadline`.
    pub async fn wait_exit(&self, deadline: Duration) -> i32 {
        let status = self.process.wait(deadline).await;
        status.map(exit_code).unwrap_or_else(|| {
            panic!(
                "{} still runs after {deadline:?}; the log:\n{}",
                self.identity,
                self.logs()
            )
        })
    }

    /// Its exit code; `None` while it runs.
    pub fn exit_code(&self) -> Option<i32> {
        self.process.exit_status().map(exit_code)
    }

    /// Starts it again with the same arguments, port and status directory, as
    /// a service manager restarts a service. If it still runs it is killed.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn restart_same_directory(&mut self) {
        self.process.kill();
        self.process = self
            .launch
            .start()
            .unwrap_or_else(|failure| panic!("{failure}"));
    }

    /// All that it has written to standard error, over restarts.
    pub fn logs(&self) -> String {
        let text = std::fs::read(self.scratch.path().join("log")).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// The log lines that are JSON objects.
    pub fn log_records(&self) -> Vec<Value> {
        self.logs()
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    /// Observes the status file until it satisfies `condition`.
    ///
    /// # Panics
    /// After `deadline`, or when the daemon exits before, with the last status
    /// and the log.
    pub async fn wait_until(
        &self,
        condition: impl FnMut(&Value) -> bool,
        deadline: Duration,
    ) -> Value {
        let waited = self.try_wait_until(condition, deadline).await;
        waited.unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// As [`wait_until`](Self::wait_until).
    ///
    /// # Errors
    /// After `deadline`, or when the daemon exits before, with the last status
    /// and the log.
    pub async fn try_wait_until(
        &self,
        mut condition: impl FnMut(&Value) -> bool,
        deadline: Duration,
    ) -> Result<Value, Failure> {
        let end = Instant::now() + deadline;
        loop {
            let exit = self.exit_code();
            let status = self.try_status();
            // What it wrote last counts, so the file is read after the exit.
            if let Some(status) = &status
                && condition(status)
            {
                return Ok(status.clone());
            }
            let why = match exit {
                Some(code) => format!("exited with {code}"),
                None if Instant::now() > end => format!("not so after {deadline:?}"),
                None => {
                    tokio::time::sleep(POLL).await;
                    continue;
                }
            };
            let status = status.map_or("none".to_owned(), |status| status.to_string());
            let (identity, logs) = (&self.identity, self.logs());
            return Err(Failure::new(format!(
                "{identity}: {why}; status: {status}; log:\n{logs}"
            )));
        }
    }

    /// Waits until the status file says leader with its deadline ahead.
    ///
    /// # Panics
    /// As [`wait_until`](Self::wait_until).
    pub async fn wait_leads(&self, deadline: Duration) -> Value {
        self.wait_until(leads, deadline).await
    }
}

/// Whether `status` grants authority at this instant, in this boot.
pub fn leads(status: &Value) -> bool {
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    status["leader"] == true
        && status["role"] == "leader"
        && status["boot_id"] == boot_id.trim()
        && status["valid_until_boottime_ns"]
            .as_u64()
            .is_some_and(|until| until > boottime_ns())
}

/// CLOCK_BOOTTIME now, in nanoseconds, to compare with `valid_until_boottime_ns`.
pub fn boottime_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let nanos = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
    u64::try_from(nanos).expect("CLOCK_BOOTTIME is not negative")
}

/// The value of a sample in the text format of Prometheus. `name` is either a
/// bare name, for its first series, or has all labels as they are printed:
/// `leasehold_leader{lease="orders"}`.
pub fn sample(text: &str, name: &str) -> Option<f64> {
    text.lines().find_map(|line| {
        let rest = line.strip_prefix(name)?;
        let rest = match rest.strip_prefix('{') {
            // Label values of ours hold no braces.
            Some(labels) => labels.split_once('}')?.1,
            None => rest,
        };
        // Else `name` was only the beginning of a longer one.
        rest.strip_prefix(' ')?.split(' ').next()?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_found_by_name_and_by_labels() {
        let text = "# HELP a_total x\na_total_more 9\na_total{k=\"v\",l=\"w\"} 1\na_total{k=\"x\"} 2.5\nb 3\n";
        assert_eq!(sample(text, "a_total"), Some(1.0));
        assert_eq!(sample(text, "a_total{k=\"x\"}"), Some(2.5));
        assert_eq!(sample(text, "b"), Some(3.0));
        assert_eq!(sample(text, "c"), None);
    }

    #[test]
    fn authority_needs_a_deadline_ahead_in_this_boot() {
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let status = |until: u64, boot_id: &str| {
            serde_json::json!({ "role": "leader", "leader": true,
                "valid_until_boottime_ns": until, "boot_id": boot_id })
        };
        let ahead = boottime_ns() + 1_000_000_000;
        assert!(leads(&status(ahead, boot_id.trim())));
        assert!(!leads(&status(ahead, "another")));
        assert!(!leads(&status(boottime_ns() - 1, boot_id.trim())));
    }
}
