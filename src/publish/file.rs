//! Keeps `status.json` and `status.env` up to date on a separate thread, because a hanging disk
//! would otherwise stall renewals and delay a step-down. The thread always writes the newest
//! status; on a slow disk, it skips older statuses.

mod error_log;
#[cfg(test)]
mod tests;

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use self::error_log::ErrorLog;
use super::StoreError;
use super::directory::{
    CLAIM_FILE, ENV_FILE, JSON_FILE, StatusDirectory, empty, replace_file, temporary,
};
use super::metrics::Metrics;
use super::render::{
    ClockPair, Identification, StatusDocument, authority_at, last_status, renders_equal,
};
use crate::clock::boot_now;
use crate::election::{BootTime, Claim, Status, Timings, Token};
use crate::store::DeploymentId;

/// Maximum number of queued calls to the thread. If the queue is full, a wake-up may be dropped,
/// because every queued call makes the thread read the newest status.
const QUEUE_LENGTH_MAX: usize = 16;

/// Delay before the files show another candidate's change of role. In a handoff, the release and
/// the next acquisition follow within milliseconds, so one write covers both. The delay also leaves
/// the disk idle while a follower acquires the lease.
const OTHERS_SETTLE: Duration = Duration::from_millis(50);

/// Options of the status files' writer.
#[derive(Debug, Clone)]
pub struct FileOptions {
    /// The candidate.
    pub who: Identification,
    /// The current timings. A leader's files are rewritten at each renewal, and at the latest after
    /// 1.5 times renew_interval. A follower's files are rewritten at the latest after half of
    /// lease_duration.
    pub timings: watch::Receiver<Timings>,
    /// The current error of the store, if any.
    pub store_error: watch::Receiver<Option<StoreError>>,
    /// The deployment to record for the next process.
    pub deployment: watch::Receiver<Option<DeploymentId>>,
}

/// The event loop's handle to the thread. When the handle is dropped, the thread writes that this
/// candidate does not lead, unlocks the directory, and exits.
#[derive(Debug)]
pub struct StatusFileHandle {
    calls: SyncSender<Call>,
    record: watch::Sender<Option<ClaimRecord>>,
    progress: WriteProgress,
}

#[derive(Debug)]
enum Call {
    Wake,
    Flush(oneshot::Sender<bool>),
    Close(oneshot::Sender<bool>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ClaimRecord {
    claim: Option<Claim>,
    token: Token,
    lease_longest: Option<Duration>,
}

impl StatusFileHandle {
    /// Starts the thread, which writes the files immediately.
    pub fn spawn(
        directory: StatusDirectory,
        status: watch::Receiver<Status>,
        options: FileOptions,
        metrics: Metrics,
    ) -> io::Result<Self> {
        let (calls, queue) = sync_channel(QUEUE_LENGTH_MAX);
        let (record, claim_record) = watch::channel(None);
        let mut writer = StatusWriter::new(directory, status, claim_record, options, metrics);
        let progress = writer.progress.clone();
        thread::Builder::new()
            .name("status-file".to_owned())
            .spawn(move || {
                let asked = writer.run(&queue);
                let last = writer.end();
                // Unlocks the directory before the answer, so that the receiver can start a
                // successor there.
                drop(writer);
                if let Some(answer) = asked {
                    let _ = answer.send(last);
                }
            })?;
        Ok(Self {
            calls,
            record,
            progress,
        })
    }

    /// Notifies the thread of a new status in the channel. Never blocks.
    pub fn wake(&self) {
        // If the queue is full, an earlier call makes the thread read the newest status.
        let _ = self.calls.try_send(Call::Wake);
    }

    /// Requests a write of the current status. Never blocks. The answer is false if the files still
    /// show an older status. The answer is true even if "not leader" could not be written, provided
    /// that neither file says "leader". The receiver fails if the queue is full, or if the thread
    /// exits before it answers.
    pub fn flush(&self) -> oneshot::Receiver<bool> {
        self.ask(Call::Flush)
    }

    fn ask(&self, question: impl FnOnce(oneshot::Sender<bool>) -> Call) -> oneshot::Receiver<bool> {
        let (answer, answered) = oneshot::channel();
        let _ = self.calls.try_send(question(answer));
        answered
    }

    /// Schedules a write of the claim record, with the highest token and the longest lease duration
    /// seen. A newer call replaces an older call. Never blocks.
    pub fn record(&self, claim: Option<Claim>, token: Token, lease_longest: Option<Duration>) {
        self.record.send_replace(Some(ClaimRecord {
            claim,
            token,
            lease_longest,
        }));
        self.wake();
    }

    /// Returns the progress of the thread's writes.
    pub fn progress(&self) -> WriteProgress {
        self.progress.clone()
    }

    /// Ends the thread, which first writes that this candidate has stopped, and unlocks the
    /// directory. The caller should wait for the answer, with a timeout.
    pub fn close(&self) -> oneshot::Receiver<bool> {
        self.ask(Call::Close)
    }
}

/// A record for the next process, rewritten only when its content changes.
struct RecordFile<T> {
    newest: watch::Receiver<Option<T>>,
    written: Option<T>,
    errors: ErrorLog,
}

impl<T: Clone + PartialEq> RecordFile<T> {
    fn new(what: &'static str, newest: watch::Receiver<Option<T>>) -> Self {
        Self {
            newest,
            written: None,
            errors: ErrorLog::of(what),
        }
    }

    fn update(&mut self, path: &Path, metrics: &Metrics, write: impl Fn(&T) -> io::Result<()>) {
        let newest = self.newest.borrow().clone();
        let Some(record) = newest.filter(|record| self.written.as_ref() != Some(record)) else {
            return;
        };
        match write(&record) {
            Ok(()) => {
                self.errors.over(path);
                self.written = Some(record);
            }
            Err(error) => self.errors.failed(path, &error, metrics),
        }
    }
}

/// Means that no write is in progress. No write has this start time, because no write begins in the
/// first nanosecond after boot.
const IDLE: u64 = 0;

/// Tracks the write in progress, because a write to a hanging disk neither returns nor fails.
/// Clones share the state.
#[derive(Debug, Clone, Default)]
pub struct WriteProgress {
    begun_ns: Arc<AtomicU64>,
}

impl WriteProgress {
    fn begins(&self, now: BootTime) {
        self.begun_ns.store(now.as_nanos(), Ordering::Relaxed);
    }

    fn ends(&self) {
        self.begun_ns.store(IDLE, Ordering::Relaxed);
    }

    /// Returns the elapsed time of the write in progress; `None` between writes.
    pub fn busy_for(&self, now: BootTime) -> Option<Duration> {
        match self.begun_ns.load(Ordering::Relaxed) {
            IDLE => None,
            begun => Some(now.since(BootTime::from_nanos(begun))),
        }
    }
}

struct StatusWriter {
    directory: StatusDirectory,
    status: watch::Receiver<Status>,
    options: FileOptions,
    metrics: Metrics,
    claim: RecordFile<ClaimRecord>,
    deployment: RecordFile<DeploymentId>,
    progress: WriteProgress,
    /// The status in the files; `None` if unknown, as at startup.
    shown: Option<Status>,
    shown_error: Option<StoreError>,
    /// True if a file may say "leader": a predecessor's file, or the second file if only the first
    /// could be rewritten.
    says_leader: bool,
    /// The deadline from the last attempt to write the files.
    leader_until: Option<BootTime>,
    rewrite_at: BootTime,
    stopped: bool,
    errors: ErrorLog,
}

impl StatusWriter {
    fn new(
        directory: StatusDirectory,
        status: watch::Receiver<Status>,
        claim_record: watch::Receiver<Option<ClaimRecord>>,
        options: FileOptions,
        metrics: Metrics,
    ) -> Self {
        Self {
            directory,
            status,
            claim: RecordFile::new("claim record", claim_record),
            deployment: RecordFile::new("deployment record", options.deployment.clone()),
            options,
            metrics,
            progress: WriteProgress::default(),
            shown: None,
            shown_error: None,
            says_leader: true,
            leader_until: None,
            rewrite_at: BootTime::default(),
            stopped: false,
            errors: ErrorLog::of("status file"),
        }
    }

    /// Serves calls until the handle is dropped or a close request arrives. Returns the answer
    /// channel of the close request.
    fn run(&mut self, queue: &Receiver<Call>) -> Option<oneshot::Sender<bool>> {
        loop {
            self.record();
            self.show_if_due(false);
            let call = match queue.recv_timeout(self.wait()) {
                Ok(call) => call,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return None,
            };
            // One read of the newest status answers every queued call.
            let calls = std::iter::once(call).chain(queue.try_iter().take(QUEUE_LENGTH_MAX));
            let (mut flushes, mut closed) = (Vec::new(), None);
            for call in calls {
                match call {
                    Call::Wake => {}
                    Call::Flush(answer) => flushes.push(answer),
                    Call::Close(answer) => closed = Some(answer),
                }
            }
            if !flushes.is_empty() {
                self.record();
                let flushed = self.show_if_due(true);
                for flush in flushes {
                    let _ = flush.send(flushed);
                }
            }
            if closed.is_some() {
                return closed;
            }
        }
    }

    fn renew_interval(&self) -> Duration {
        self.options.timings.borrow().renew_interval()
    }

    /// Returns the instant at which the files are rewritten if their content does not change. A
    /// follower's files contain no authority. Rewriting them once per renew_interval would take
    /// 30 % of an idle follower's CPU time.
    fn next_rewrite(&self, current: &Status, now: BootTime) -> BootTime {
        // Renewals already rewrite a leader's files, so the extra rewrite waits longer than a
        // renewal interval.
        if current.authority.is_some() {
            return now + self.renew_interval() * 3 / 2;
        }
        let refresh = now + self.options.timings.borrow().lease_duration() / 2;
        // The holder's lease may expire without a change that wakes this thread.
        let holder = current.holder.as_ref();
        holder.map_or(refresh, |holder| refresh.min(holder.until))
    }

    /// Returns the time until the next rewrite or the deadline in the files, whichever is earlier.
    /// The files are rewritten at the deadline for readers that use the field `leader` without
    /// checking the deadline.
    fn wait(&self) -> Duration {
        let now = boot_now();
        let deadline = self.leader_until.unwrap_or(self.rewrite_at);
        deadline.min(self.rewrite_at).since(now)
    }

    /// Writes the files if they are outdated or their rewrite is due. With `at_once`, another
    /// candidate's change is not delayed. Returns the same result as [`StatusFileHandle::flush`].
    fn show_if_due(&mut self, at_once: bool) -> bool {
        let now = boot_now();
        let current = self.status.borrow_and_update().at(now);
        let shown = self.shown.as_ref();
        let same_error = *self.options.store_error.borrow() == self.shown_error;
        if now < self.rewrite_at
            && same_error
            && shown.is_some_and(|shown| renders_equal(shown, &current))
        {
            return true;
        }
        let own = self.says_leader || current.authority.is_some();
        if now < self.rewrite_at && same_error && shown.is_some() && !own && !at_once {
            self.rewrite_at = self.rewrite_at.min(now + OTHERS_SETTLE);
            return false;
        }
        self.rewrite_at = self.next_rewrite(&current, now);
        let answer = self.show(&current);
        if self.shown.is_none() {
            // A failed write is repeated soon.
            self.rewrite_at = now + self.renew_interval();
        }
        answer
    }

    fn show(&mut self, current: &Status) -> bool {
        self.leader_until = authority_at(current, boot_now()).map(|a| a.valid_until);
        if let Err(error) = self.write(current) {
            self.shown = None;
            let path = self.directory.path();
            self.errors.failed(path, &error, &self.metrics);
            if authority_at(current, boot_now()).is_some() {
                // The files keep an earlier deadline or no deadline, so readers may stop trusting
                // the files too early, but never too late.
                return false;
            }
            if !self.says_leader {
                return true;
            }
            // A file that says "leader" must not remain if it cannot be rewritten. If the disk is
            // full, removing the files frees space, so one more attempt may succeed.
            let removed = remove_files(self.directory.path());
            self.says_leader = removed.is_err();
            if self.write(current).is_err() {
                return removed.is_ok();
            }
        }
        self.errors.over(self.directory.path());
        true
    }

    fn write(&mut self, current: &Status) -> io::Result<()> {
        self.progress.begins(boot_now());
        let written = self.replace(current);
        self.progress.ends();
        if written.is_ok() {
            self.metrics.status_files_written();
        }
        written
    }

    fn replace(&mut self, current: &Status) -> io::Result<()> {
        if self.directory.keep().map_err(io::Error::other)? {
            self.claim.written = None;
            self.deployment.written = None;
            self.record();
        }
        // The clock is read once, after the check of the directory, which can hang. The files and
        // the writer's own state use this instant.
        let (error, now) = (self.options.store_error.borrow().clone(), ClockPair::now());
        let current = current.at(now.boot);
        let authority = authority_at(&current, now.boot);
        self.leader_until = authority.map(|authority| authority.valid_until);
        self.says_leader |= authority.is_some();
        let mut document = StatusDocument::new(&current, &self.options.who, now)
            .with_store_error(error.as_ref(), now);
        // One interval is added, because the thread may be late on a busy machine.
        let due = self.rewrite_at + self.renew_interval();
        document.rewrite_due_boottime_ns = (!self.stopped).then(|| due.as_nanos());
        document.stopped = self.stopped;
        self.shown_error = error;
        let (json, env) = (document.to_json(), document.to_env());
        replace_files(self.directory.path(), &json, &env)?;
        self.says_leader = authority.is_some();
        self.shown = Some(current);
        Ok(())
    }

    fn record(&mut self) {
        let directory = &self.directory;
        let path = directory.path().join(CLAIM_FILE);
        self.claim.update(&path, &self.metrics, |record| {
            directory.record(record.claim, record.token, record.lease_longest)
        });
        let path = directory.deployment_file();
        self.deployment.update(&path, &self.metrics, |deployment| {
            directory.remember_deployment(deployment)
        });
    }

    fn end(&mut self) -> bool {
        self.record();
        let last = last_status(&self.status.borrow(), boot_now());
        self.stopped = true;
        self.show(&last)
    }
}

/// The files are world-readable, because the workload may run as another user.
const MODE: u32 = 0o644;

/// Writes both files, even if writing the first file fails. A sync would cost a disk flush per
/// renewal and is not needed: after a machine crash, a file is invalid because its boot id is old.
fn replace_files(directory: &Path, json: &str, env: &str) -> io::Result<()> {
    let [first, second] = [(JSON_FILE, json), (ENV_FILE, env)].map(|(name, text)| {
        let path = directory.join(name);
        replace_file(&path, &temporary(&path), MODE, text.as_bytes())
    });
    first.and(second)
}

/// Removes both files, or empties them if the directory forbids removal.
fn remove_files(directory: &Path) -> io::Result<()> {
    let [first, second] = [JSON_FILE, ENV_FILE].map(|name| {
        let path = directory.join(name);
        match fs::remove_file(&path).map_err(|error| error.kind()) {
            // If the directory does not exist, neither does the file.
            Ok(()) | Err(ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(()),
            Err(_) => empty(&path),
        }
    });
    first.and(second)
}
