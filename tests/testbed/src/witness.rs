//! A checker that runs beside a test: at no instant two leaders (I1), and
//! every leader's token above all tokens before it (I3).
//!
//! It reads the status files of all candidates every few milliseconds and
//! judges them as a workload does, by their deadlines. No two files can be
//! read at one instant, so two leaders in one round prove nothing: each
//! suspect's file is read again. Whoever says leader with the same token in
//! both rounds led all the time between them, since a claim leads once.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

use crate::Daemon;
use crate::daemon::{boottime_ns, leads};

/// Fine enough to see a hand-off between two leaders.
const INTERVAL: Duration = Duration::from_millis(3);

/// A time of leadership as the files showed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reign {
    /// Who led.
    pub identity: String,
    /// With which token.
    pub token: i64,
    /// When it was first seen to lead, on CLOCK_BOOTTIME.
    pub first_ns: u64,
    /// When it was last seen to lead.
    pub last_ns: u64,
}

/// Watches candidates until it is dropped.
#[derive(Debug)]
pub struct Witness {
    record: Arc<Mutex<Record>>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Record {
    directories: Vec<PathBuf>,
    reigns: Vec<Reign>,
    violations: Vec<String>,
}

impl Witness {
    /// Begins to watch.
    pub fn of<'a>(daemons: impl IntoIterator<Item = &'a Daemon>) -> Self {
        let record = Arc::new(Mutex::new(Record::default()));
        let ended = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new()
            .name("testbed-witness".to_owned())
            .spawn({
                let (record, ended) = (Arc::clone(&record), Arc::clone(&ended));
                move || {
                    while !ended.load(Ordering::Relaxed) {
                        look(&record);
                        std::thread::sleep(INTERVAL);
                    }
                }
            })
            .expect("a thread can be started");
        let witness = Self {
            record,
            ended,
            thread: Some(thread),
        };
        daemons.into_iter().for_each(|daemon| witness.add(daemon));
        witness
    }

    /// Watches one more.
    pub fn add(&self, daemon: &Daemon) {
        let directory = daemon.status_directory().to_path_buf();
        lock(&self.record).directories.push(directory);
        look(&self.record);
    }

    /// All leaders so far, in the order of their tokens.
    pub fn reigns(&self) -> Vec<Reign> {
        // What the caller has seen must be among them.
        look(&self.record);
        lock(&self.record).reigns.clone()
    }

    /// Who led so far, in order.
    pub fn leaders(&self) -> Vec<String> {
        let reigns = self.reigns();
        reigns.into_iter().map(|reign| reign.identity).collect()
    }

    /// What was seen against the invariants.
    pub fn violations(&self) -> Vec<String> {
        lock(&self.record).violations.clone()
    }

    /// Ends the watch without a verdict, where a test means to see a violation.
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

impl Drop for Witness {
    fn drop(&mut self) {
        self.end();
        let record = lock(&self.record);
        if !std::thread::panicking() {
            let Record {
                reigns, violations, ..
            } = &*record;
            assert!(violations.is_empty(), "{violations:#?} among {reigns:#?}");
        }
    }
}

fn lock(record: &Mutex<Record>) -> MutexGuard<'_, Record> {
    record.lock().expect("the witness does not panic")
}

fn look(record: &Mutex<Record>) {
    let directories = lock(record).directories.clone();
    let read = |directory: &PathBuf| Some((directory.clone(), leader(directory)?));
    let first: Vec<_> = directories.iter().filter_map(read).collect();
    let mut record = lock(record);
    if first.len() > 1 {
        let between = boottime_ns();
        let still = |(directory, before): &&(PathBuf, (String, i64))| {
            leader(directory).as_ref() == Some(before)
        };
        let at_once: Vec<_> = first.iter().filter(still).map(|(_, who)| who).collect();
        if at_once.len() > 1 {
            let violation = format!("leaders at {between} at once: {at_once:?}");
            record.violations.push(violation);
        }
    }
    let now = boottime_ns();
    for (_, (identity, token)) in first {
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

/// Identity and token of whoever leads by the file at this instant.
fn leader(directory: &Path) -> Option<(String, i64)> {
    let text = std::fs::read_to_string(directory.join("status.json")).ok()?;
    // A torn file is the daemon's fault and is reported by the fixture.
    let status: Value = serde_json::from_str(&text).ok()?;
    leads(&status).then(|| {
        let identity = status["identity"].as_str().unwrap_or_default().to_owned();
        (identity, status["token"].as_i64().unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
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
        let directories = directories.iter().map(|path| path.to_path_buf()).collect();
        Mutex::new(Record {
            directories,
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
