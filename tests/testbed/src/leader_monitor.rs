//! Checks two invariants while a test runs: at most one candidate leads at any time (I1), and each
//! leader's token is higher than all earlier tokens (I3).
//!
//! The monitor reads the status files of all candidates every few milliseconds and evaluates their
//! deadlines, like a workload. Two files cannot be read at the same instant, so two leaders in one
//! round prove nothing. If a round finds several leaders, the monitor reads their files again. A
//! candidate that leads with the same token in both rounds has led continuously between them,
//! because a claim leads only once.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::daemon::{StatusFile, boottime_ns, leads};
use crate::{Daemon, eventually, report_violation};

/// Sampling interval, short enough to observe a handoff between two leaders.
const INTERVAL: Duration = Duration::from_millis(3);

/// A period of leadership, as the status files show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reign {
    /// Identity of the leader.
    pub identity: String,
    /// The leader's token.
    pub token: i64,
    /// Time of the first observation as leader, on CLOCK_BOOTTIME.
    pub first_ns: u64,
    /// Time of the last observation as leader, on CLOCK_BOOTTIME.
    pub last_ns: u64,
}

/// Waits until one of these candidates leads, and returns it.
///
/// # Panics
/// If this takes longer than [`LONG`](crate::wait::LONG).
pub async fn leader_of<'a>(daemons: &[&'a Daemon]) -> &'a Daemon {
    let found = std::cell::Cell::new(None);
    eventually("a candidate leads", async || {
        found.set(daemons.iter().copied().find(|daemon| daemon.leads()));
        found.get().is_some()
    })
    .await;
    found.get().expect("the wait found a leader")
}

/// Watches candidates until dropped.
#[derive(Debug)]
pub struct LeaderMonitor {
    record: Arc<Mutex<Record>>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Record {
    candidates: Vec<(PathBuf, StatusFile)>,
    reigns: Vec<Reign>,
    violations: Vec<String>,
}

impl LeaderMonitor {
    /// Starts to watch these candidates.
    pub fn of<'a>(daemons: impl IntoIterator<Item = &'a Daemon>) -> Self {
        let record = Arc::new(Mutex::new(Record::default()));
        let ended = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new()
            .name("testbed-monitor".to_owned())
            .spawn({
                let (record, ended) = (Arc::clone(&record), Arc::clone(&ended));
                move || {
                    while !ended.load(Ordering::Relaxed) {
                        look(&record);
                        std::thread::sleep(INTERVAL);
                    }
                }
            })
            .expect("start a thread");
        let monitor = Self {
            record,
            ended,
            thread: Some(thread),
        };
        daemons.into_iter().for_each(|daemon| monitor.add(daemon));
        monitor
    }

    /// Watches this candidate too.
    pub fn add(&self, daemon: &Daemon) {
        let directory = daemon.status_directory().to_path_buf();
        let candidate = (directory, StatusFile::default());
        lock(&self.record).candidates.push(candidate);
        look(&self.record);
    }

    /// Returns all leaders so far, in the order of their tokens.
    pub fn reigns(&self) -> Vec<Reign> {
        // Read the files once more, so that the result includes every leader that the caller has
        // observed.
        look(&self.record);
        lock(&self.record).reigns.clone()
    }

    /// Returns the identities of all leaders so far, in the order of their tokens.
    pub fn leaders(&self) -> Vec<String> {
        let reigns = self.reigns();
        reigns.into_iter().map(|reign| reign.identity).collect()
    }

    /// Returns the observed violations of the invariants.
    pub fn violations(&self) -> Vec<String> {
        lock(&self.record).violations.clone()
    }

    /// Stops watching and returns the violations, for tests that expect violations.
    pub fn dismiss(mut self) -> Vec<String> {
        self.end();
        std::mem::take(&mut lock(&self.record).violations)
    }

    fn end(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for LeaderMonitor {
    fn drop(&mut self) {
        self.end();
        let record = lock(&self.record);
        let Record {
            reigns, violations, ..
        } = &*record;
        if !violations.is_empty() {
            report_violation(&format!("{violations:#?} among {reigns:#?}"));
        }
    }
}

fn lock(record: &Mutex<Record>) -> MutexGuard<'_, Record> {
    record.lock().expect("the monitor does not panic")
}

fn look(record: &Mutex<Record>) {
    let mut record = lock(record);
    let candidates = record.candidates.iter_mut();
    let first: Vec<_> = candidates.map(leader).collect();
    if first.iter().flatten().count() > 1 {
        let between = boottime_ns();
        let candidates = record.candidates.iter_mut().zip(&first);
        let at_once: Vec<_> = candidates
            .filter_map(|(candidate, before)| {
                let before = before.as_ref()?;
                (leader(candidate).as_ref() == Some(before)).then_some(before)
            })
            .collect();
        if at_once.len() > 1 {
            let violation = format!("leaders at {between} at once: {at_once:?}");
            record.violations.push(violation);
        }
    }
    let now = boottime_ns();
    for (identity, token) in first.into_iter().flatten() {
        saw(&mut record, identity, token, now);
    }
}

fn saw(record: &mut Record, identity: String, token: i64, now: u64) {
    let known = record
        .reigns
        .iter_mut()
        .find(|reign| reign.token == token && reign.identity == identity);
    if let Some(reign) = known {
        reign.last_ns = now;
        return;
    }
    if let Some(last) = record.reigns.iter().map(|reign| reign.token).max()
        && token <= last
    {
        let violation = format!("{identity} leads with token {token} after {last}");
        record.violations.push(violation);
    }
    record.reigns.push(Reign {
        identity,
        token,
        first_ns: now,
        last_ns: now,
    });
}

fn leader((directory, file): &mut (PathBuf, StatusFile)) -> Option<(String, i64)> {
    // Skip an incomplete file, because the `Daemon` fixture already reports incomplete files.
    let status = file.read(directory)?.ok()?;
    leads(status).then(|| {
        let identity = status["identity"].as_str().unwrap_or_default().to_owned();
        (identity, status["token"].as_i64().unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn write(directory: &Path, identity: &str, token: i64, until: u64) {
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let status = serde_json::json!({ "identity": identity, "role": "leader", "leader": true,
            "token": token, "valid_until_boottime_ns": until, "boot_id": boot_id.trim() });
        let next = directory.join("next");
        std::fs::write(&next, status.to_string()).unwrap();
        std::fs::rename(next, directory.join("status.json")).unwrap();
    }

    fn record_of(directories: &[&Path]) -> Mutex<Record> {
        let candidate = |path: &&Path| (path.to_path_buf(), StatusFile::default());
        Mutex::new(Record {
            candidates: directories.iter().map(candidate).collect(),
            ..Record::default()
        })
    }

    #[test]
    fn two_leaders_at_once_are_seen() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let record = record_of(&[a.path(), b.path()]);
        let ahead = boottime_ns() + 60_000_000_000;
        write(a.path(), "a", 1, ahead);
        write(b.path(), "b", 2, 1);
        look(&record);
        assert!(lock(&record).violations.is_empty());
        write(b.path(), "b", 2, ahead);
        look(&record);
        assert_eq!(lock(&record).violations.len(), 1);
    }

    #[test]
    fn a_token_that_does_not_grow_is_seen() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let record = record_of(&[a.path(), b.path()]);
        let ahead = boottime_ns() + 60_000_000_000;
        write(a.path(), "a", 2, ahead);
        look(&record);
        write(a.path(), "a", 2, 1);
        write(b.path(), "b", 2, ahead);
        look(&record);
        let record = lock(&record);
        assert_eq!(record.violations.len(), 1, "{record:?}");
        assert_eq!(record.reigns.len(), 2);
    }
}
