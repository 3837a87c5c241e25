//! Runs `leasehold run` as a process, and observes the process through its files, HTTP server and
//! log.

mod builder;
mod last_lines;
mod status_file;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

use self::last_lines::LastLines;
pub(crate) use self::status_file::StatusFile;
use crate::process::exit_code;
use crate::{CheckedTrace, Failure, Launch, Process, ReservedPort, Scratch, eventually, http};

pub use builder::{DaemonBuilder, DaemonTimings};
pub use status_file::{leads, leads_at, valid_until_ns};

/// Poll interval, shorter than a handoff (about 5 ms, measured).
const POLL: Duration = Duration::from_millis(2);

/// A running daemon. Dropping this value kills the process (SIGKILL).
#[derive(Debug)]
pub struct Daemon {
    identity: String,
    launch: Launch,
    process: Process,
    port: ReservedPort,
    http: SocketAddr,
    directory: PathBuf,
    /// Declared after `process`, so that the trace is checked after the process has ended.
    _trace: Option<CheckedTrace>,
    /// Declared before `scratch`, so that the last lines are printed before the log is removed.
    _last_lines: LastLines,
    scratch: Scratch,
}

impl Daemon {
    /// Returns a builder for a daemon from the binary at `program`. Tests of the root package pass
    /// `env!("CARGO_BIN_EXE_leasehold")`.
    pub fn builder(program: impl Into<PathBuf>) -> DaemonBuilder {
        DaemonBuilder::new(program.into())
    }

    /// Returns the identity of the candidate.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Returns the port of the HTTP server.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Returns the status directory.
    pub fn status_directory(&self) -> &Path {
        &self.directory
    }

    /// Returns a private directory that outlives the process, and contains the log, the URI file,
    /// and files of the test.
    pub fn directory(&self) -> &Path {
        self.scratch.path()
    }

    /// Returns the content of `status.json`, or `None` if the file does not exist.
    ///
    /// # Panics
    /// If the file is not JSON, because the daemon must replace it atomically.
    pub fn try_status(&self) -> Option<Value> {
        StatusFile::default().read_whole(&self.directory).cloned()
    }

    /// Returns the content of `status.json`.
    ///
    /// # Panics
    /// If the file does not exist.
    pub fn status(&self) -> Value {
        self.try_status()
            .unwrap_or_else(|| panic!("no status.json; the log:\n{}", self.logs()))
    }

    /// Returns true if the status file says leader and its deadline is in the future, like
    /// `leasehold status`.
    pub fn leads(&self) -> bool {
        self.try_status().is_some_and(|status| leads(&status))
    }

    /// Returns the deadline of the authority in the status file, on CLOCK_BOOTTIME, if any.
    pub fn valid_until_ns(&self) -> Option<u64> {
        valid_until_ns(&self.status())
    }

    /// Returns the token that the status file shows.
    pub fn token(&self) -> Option<i64> {
        self.status()["token"].as_i64()
    }

    /// Sends `GET path` and returns the status and the body of the response.
    ///
    /// # Errors
    /// If there is no response, because the daemon is frozen or has exited.
    pub async fn http(&self, path: &str) -> Result<(u16, String), Failure> {
        http::request(self.http, "GET", path, &[]).await
    }

    /// Sends `GET path` and returns the status and the body, parsed as JSON.
    ///
    /// # Panics
    /// If there is no response, or its body is not JSON.
    pub async fn http_json(&self, path: &str) -> (u16, Value) {
        let (code, body) = self.http(path).await.expect("an answer");
        let body = serde_json::from_str(&body);
        (code, body.unwrap_or_else(|error| panic!("{path}: {error}")))
    }

    /// Sends a request with any method and headers, without a body.
    ///
    /// # Errors
    /// If there is no response.
    pub async fn http_request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<(u16, String), Failure> {
        http::request(self.http, method, path, headers).await
    }

    /// Returns one sample of `/metrics`; see [`sample`].
    ///
    /// # Panics
    /// If there is no response or no such sample.
    pub async fn metric(&self, name: &str) -> f64 {
        let (_, text) = self
            .http("/metrics")
            .await
            .unwrap_or_else(|failure| panic!("{failure}"));
        sample(&text, name).unwrap_or_else(|| panic!("no metric {name} in:\n{text}"))
    }

    /// Returns the sum of a metric's samples that have all of these labels, such as
    /// `outcome="unknown"`. Waits until the daemon listens, which takes a few milliseconds after
    /// its start.
    ///
    /// # Panics
    /// If there is no response.
    pub async fn metric_sum(&self, name: &str, labels: &[String]) -> f64 {
        let mut page = String::new();
        eventually("the metrics page answers", async || {
            let answer = self.http("/metrics").await;
            page = answer.map(|(_, text)| text).unwrap_or_default();
            !page.is_empty()
        })
        .await;
        let series = page.lines().filter(|line| {
            line.starts_with(name) && labels.iter().all(|label| line.contains(label.as_str()))
        });
        series
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }

    /// Returns the number of store calls of a kind with this outcome.
    pub async fn operations(&self, operation: &str, outcome: &str) -> f64 {
        let labels = [
            format!("operation=\"{operation}\""),
            format!("outcome=\"{outcome}\""),
        ];
        let name = "leasehold_store_operations_total";
        self.metric_sum(name, &labels).await
    }

    /// Waits until this many store calls of a kind had this outcome.
    ///
    /// # Panics
    /// If this takes longer than [`LONG`](crate::wait::LONG).
    pub async fn wait_operations(&self, operation: &str, outcome: &str, count: f64) {
        eventually(&format!("{operation}: {outcome}"), async || {
            self.operations(operation, outcome).await >= count
        })
        .await;
    }

    /// Waits until the change stream is open.
    ///
    /// # Panics
    /// If this takes longer than [`LONG`](crate::wait::LONG).
    pub async fn wait_stream(&self) {
        eventually("the change stream is open", async || {
            self.metric_sum("leasehold_watch_connected", &[]).await == 1.0
        })
        .await;
    }

    /// Returns the number of role changes with this reason.
    pub async fn transitions(&self, reason: &str) -> f64 {
        let labels = [format!("reason=\"{reason}\"")];
        self.metric_sum("leasehold_transitions_total", &labels)
            .await
    }

    /// Replaces the file with the connection string atomically; the daemon may be reading it.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn replace_uri(&self, uri: &str) {
        let directory = self.scratch.path();
        let new = directory.join("uri.new");
        builder::write_secret(&new, uri);
        std::fs::rename(&new, directory.join(builder::URI_FILE)).expect("rename the file");
    }

    /// Leaves a [detached](DaemonBuilder::detached) daemon running, with its files. The caller must
    /// kill the process.
    pub fn leave_up(mut self) {
        self.process.leave_up();
        self.scratch.keep();
    }

    /// Asks the daemon to step down and exit (SIGTERM).
    pub fn term(&self) {
        self.signal(Signal::TERM);
    }

    /// Kills the daemon (SIGKILL) and waits until the process has exited.
    pub fn kill(&self) {
        self.process.kill();
    }

    /// Freezes the daemon (SIGSTOP).
    pub fn stop(&self) {
        self.process.stop();
    }

    /// Resumes the daemon after [`stop`](Self::stop).
    pub fn cont(&self) {
        self.signal(Signal::CONT);
    }

    /// Sends any signal.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Asks the daemon to step down, and waits for the exit; see [`wait_exit`](Self::wait_exit).
    ///
    /// # Panics
    /// If the daemon is still running after `deadline`.
    pub async fn term_and_exit(&self, deadline: Duration) -> i32 {
        self.term();
        self.wait_exit(deadline).await
    }

    /// Waits for the exit. Returns the exit code, which is 128 + n after signal n.
    ///
    /// # Panics
    /// If the daemon is still running after `deadline`.
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

    /// Returns the exit code; `None` while the daemon is running.
    pub fn exit_code(&self) -> Option<i32> {
        self.process.exit_status().map(exit_code)
    }

    /// Restarts the daemon with the same arguments, port and status directory. Kills the running
    /// process, if any.
    ///
    /// # Panics
    /// If the daemon cannot be started.
    pub fn restart_same_directory(&mut self) {
        self.process.kill();
        self.process = self
            .launch
            .start()
            .unwrap_or_else(|failure| panic!("{failure}"));
    }

    /// Returns everything written to standard error, across restarts.
    pub fn logs(&self) -> String {
        let text = std::fs::read(self.log()).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }

    fn log(&self) -> PathBuf {
        self.scratch.path().join("log")
    }

    /// Returns the number of log lines that contain this text.
    pub fn logged(&self, text: &str) -> usize {
        let logs = self.logs();
        logs.lines().filter(|line| line.contains(text)).count()
    }

    /// Waits until a log line contains this text.
    ///
    /// # Panics
    /// If this takes longer than `deadline`. The message contains the log.
    pub async fn wait_logged(&self, text: &str, deadline: Duration) {
        let end = Instant::now() + deadline;
        let mut seen = None;
        loop {
            // Read the log only if it has grown, because polls are frequent and logs are long.
            let length = std::fs::metadata(self.log()).map_or(0, |log| log.len());
            if seen.replace(length) != Some(length) && self.logged(text) > 0 {
                return;
            }
            assert!(Instant::now() < end, "missing: {text}; {}", self.logs());
            tokio::time::sleep(POLL).await;
        }
    }

    /// Returns the log lines that are JSON objects.
    pub fn log_records(&self) -> Vec<Value> {
        self.logs()
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    /// Polls the status file until it satisfies `condition`.
    ///
    /// # Panics
    /// If this takes longer than `deadline`, or the daemon exits first. The message contains the
    /// last status and the log.
    pub async fn wait_until(
        &self,
        condition: impl FnMut(&Value) -> bool,
        deadline: Duration,
    ) -> Value {
        let waited = self.try_wait_until(condition, deadline).await;
        waited.unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// Like [`wait_until`](Self::wait_until), but returns errors.
    ///
    /// # Errors
    /// If this takes longer than `deadline`, or the daemon exits first. The message contains the
    /// last status and the log.
    pub async fn try_wait_until(
        &self,
        mut condition: impl FnMut(&Value) -> bool,
        deadline: Duration,
    ) -> Result<Value, Failure> {
        let end = Instant::now() + deadline;
        let mut file = StatusFile::default();
        loop {
            let exit = self.exit_code();
            let status = file.read_whole(&self.directory);
            // Read after the exit status, so that the last status before an exit is not missed.
            if let Some(status) = status
                && condition(status)
            {
                return Ok(status.clone());
            }
            let why = match exit {
                Some(code) => format!("exited with {code}"),
                None if Instant::now() > end => format!("condition not met after {deadline:?}"),
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

    /// Waits until the status file says leader with a deadline in the future.
    ///
    /// # Panics
    /// Like [`wait_until`](Self::wait_until).
    pub async fn wait_leads(&self, deadline: Duration) -> Value {
        self.wait_until(leads, deadline).await
    }

    /// Waits until the status file says leader with this token.
    ///
    /// # Panics
    /// Like [`wait_until`](Self::wait_until).
    pub async fn wait_leads_with(&self, token: i64, deadline: Duration) -> Value {
        let leads_with = |status: &Value| status["leader"] == true && status["token"] == token;
        self.wait_until(leads_with, deadline).await
    }

    /// Waits until the status file says "not leader".
    ///
    /// # Panics
    /// Like [`wait_until`](Self::wait_until).
    pub async fn wait_not_leader(&self, deadline: Duration) -> Value {
        let not_leader = |status: &Value| status["leader"] == false;
        self.wait_until(not_leader, deadline).await
    }

    /// Waits until the status file shows this role.
    ///
    /// # Panics
    /// Like [`wait_until`](Self::wait_until).
    pub async fn wait_role(&self, role: &str, deadline: Duration) -> Value {
        let has_role = |status: &Value| status["role"] == role;
        self.wait_until(has_role, deadline).await
    }

    /// Waits until the daemon follows `leader`.
    ///
    /// # Panics
    /// Like [`wait_until`](Self::wait_until).
    pub async fn wait_follows(&self, leader: &str, deadline: Duration) -> Value {
        let follows =
            |status: &Value| status["role"] == "follower" && status["holder"]["identity"] == leader;
        self.wait_until(follows, deadline).await
    }

    /// Waits until the status file shows a newer renewal.
    ///
    /// # Panics
    /// Like [`wait_until`](Self::wait_until).
    pub async fn wait_renewal(&self, deadline: Duration) -> Value {
        let before = self.valid_until_ns();
        let later = |status: &Value| valid_until_ns(status) > before;
        self.wait_until(later, deadline).await
    }
}

/// Returns a duration in nanoseconds, for times on CLOCK_BOOTTIME.
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("less than centuries")
}

/// Returns CLOCK_BOOTTIME in nanoseconds, for comparison with `valid_until_boottime_ns`.
pub fn boottime_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let nanos = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
    u64::try_from(nanos).expect("CLOCK_BOOTTIME is not negative")
}

/// Returns the value of a sample in the Prometheus text format. `name` is either a bare metric
/// name, which selects the first series, or includes all labels as printed:
/// `leasehold_leader{lease="orders"}`.
pub fn sample(text: &str, name: &str) -> Option<f64> {
    text.lines().find_map(|line| {
        let rest = line.strip_prefix(name)?;
        let rest = match rest.strip_prefix('{') {
            // Our label values do not contain braces.
            Some(labels) => labels.split_once('}')?.1,
            None => rest,
        };
        // Without the space, `name` is only a prefix of a longer name.
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
