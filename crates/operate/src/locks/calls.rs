//! Calls of `leasehold locks`. Each is repeated until MongoDB answers or `--timeout` has passed.

use std::future::Future;
use std::time::Duration;

use super::LocksError;
use leasehold_clock as clock;
use leasehold_config::LockConfig;
use leasehold_core::election::{BootTime, ResourceName};
use leasehold_core::lock::{FoundLock, LockOperation, LockOutcome};
use leasehold_mongodb::store::mongo::lock::{Listed, MongoLockStore, MongoLocks};
use leasehold_mongodb::store::{Answer, Failure, RetryPolicy, Store as _};

/// The calls of one command.
pub(super) struct Calls<'a> {
    locks: &'a MongoLocks,
    /// Maximum time of one attempt: MongoDB selects a server within one `operation_timeout` and
    /// answers within another.
    attempt_max: Duration,
    retry_interval: Duration,
    timeout: Duration,
}

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteResult {
    /// MongoDB acknowledged it.
    Applied,
    /// MongoDB did not acknowledge it, but a later read shows its effect.
    Shown,
    /// The lock changed, so there is nothing to write.
    Rejected,
}

/// The state of a lock after a write whose outcome is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reread {
    /// The lock has the state that the write causes.
    Done,
    /// The lock is unchanged, so the write may be repeated.
    Unchanged,
    /// The lock changed in another way.
    Changed,
}

impl<'a> Calls<'a> {
    pub(super) fn new(locks: &'a MongoLocks, config: &LockConfig, timeout: Duration) -> Self {
        Self {
            locks,
            attempt_max: 2 * config.timings.operation_timeout(),
            retry_interval: config.timings.retry_interval(),
            timeout,
        }
    }

    /// Deadline of a call that begins now.
    pub(super) fn deadline(&self) -> BootTime {
        clock::boot_now() + self.timeout
    }

    /// Lists the locks.
    pub(super) async fn list(&self) -> Result<Vec<Listed>, LocksError> {
        self.read("list the locks", self.deadline(), || self.locks.list())
            .await
    }

    /// Reads one lock as a majority has it. The result of a `confirm`ed read includes each write
    /// that was acknowledged before.
    pub(super) async fn lock(
        &self,
        lock: &MongoLockStore,
        confirm: bool,
        deadline: BootTime,
    ) -> Result<FoundLock, LocksError> {
        let read = async || {
            let answer = lock.perform(LockOperation::Read { confirm }).await;
            match answer {
                Answer {
                    outcome: LockOutcome::Applied(found),
                    ..
                } => Ok(found),
                Answer { failure, .. } => Err(failure.unwrap_or_else(|| self.unanswered())),
            }
        };
        self.read("read the lock", deadline, read).await
    }

    /// Repeats a read until it is answered, a retry cannot succeed, or the deadline has passed.
    pub(super) async fn read<T>(
        &self,
        doing: &'static str,
        deadline: BootTime,
        read: impl AsyncFn() -> Result<T, Failure>,
    ) -> Result<T, LocksError> {
        let mut last = None;
        loop {
            match tokio::time::timeout(self.attempt_within(deadline), read()).await {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(failure)) if failure.retry == RetryPolicy::Reconfigure => {
                    return Err(LocksError::Store { doing, failure });
                }
                Ok(Err(failure)) => last = Some(failure),
                Err(_) => last = self.locks.trouble().or(last),
            }
            if !self.pause(deadline).await {
                let failure = last.unwrap_or_else(|| self.unanswered());
                return Err(LocksError::Store { doing, failure });
            }
        }
    }

    /// Repeats a write that was not sent. After a write whose outcome is unknown, the lock is read
    /// again, which decides whether the write is repeated.
    pub(super) async fn write<F>(
        &self,
        (doing, name): (&'static str, &ResourceName),
        send: impl Fn() -> F,
        reread: impl AsyncFn(BootTime) -> Result<Reread, LocksError>,
    ) -> Result<WriteResult, LocksError>
    where
        F: Future<Output = Answer<LockOutcome>> + Send + 'static,
    {
        let deadline = self.deadline();
        let mut may_be_applied = None;
        loop {
            let (outcome, failure) = self.attempted(send(), deadline).await;
            let is_final = failure.retry == RetryPolicy::Reconfigure;
            match (outcome, &may_be_applied) {
                (LockOutcome::Applied(_), _) => return Ok(WriteResult::Applied),
                (LockOutcome::Rejected, None) => return Ok(WriteResult::Rejected),
                // A server that refused this write does not apply it later.
                (LockOutcome::Failed | LockOutcome::Unknown, None) if is_final => {
                    return Err(LocksError::Store { doing, failure });
                }
                (LockOutcome::Failed, None) => {
                    if !self.pause(deadline).await {
                        return Err(LocksError::Store { doing, failure });
                    }
                    continue;
                }
                (LockOutcome::Unknown, _) => may_be_applied = Some(failure),
                (LockOutcome::Rejected | LockOutcome::Failed, Some(_)) => {}
            }
            let unknown = |failure: &Option<Failure>| LocksError::Unknown {
                name: name.clone(),
                failure: failure.clone().unwrap_or_else(|| self.unanswered()),
            };
            match reread(deadline).await {
                Ok(Reread::Done) => return Ok(WriteResult::Shown),
                Ok(Reread::Changed) => return Ok(WriteResult::Rejected),
                Ok(Reread::Unchanged) if !self.pause(deadline).await => {
                    return Err(unknown(&may_be_applied));
                }
                Ok(Reread::Unchanged) => {}
                Err(LocksError::Store { .. }) => return Err(unknown(&may_be_applied)),
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a write once. A write that is not answered in time is unknown, and keeps running.
    async fn attempted(
        &self,
        write: impl Future<Output = Answer<LockOutcome>> + Send + 'static,
        deadline: BootTime,
    ) -> (LockOutcome, Failure) {
        let limit = self.attempt_within(deadline);
        let (outcome, failure) = match tokio::time::timeout(limit, tokio::spawn(write)).await {
            Ok(Ok(answer)) => (answer.outcome, answer.failure),
            // The driver panicked, or has not answered.
            Ok(Err(_)) | Err(_) => (LockOutcome::Unknown, self.locks.trouble()),
        };
        (outcome, failure.unwrap_or_else(|| self.unanswered()))
    }

    /// Waits for the next attempt; returns false if it would begin after the deadline.
    async fn pause(&self, deadline: BootTime) -> bool {
        let has_time = clock::boot_now() + self.retry_interval < deadline;
        if has_time {
            tokio::time::sleep(self.retry_interval).await;
        }
        has_time
    }

    fn attempt_within(&self, deadline: BootTime) -> Duration {
        deadline.since(clock::boot_now()).min(self.attempt_max)
    }

    fn unanswered(&self) -> Failure {
        Failure::no_answer(self.attempt_max.min(self.timeout))
    }
}
