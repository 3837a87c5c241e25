//! MongoDB calls of `leasehold locks`. Each call is retried until MongoDB answers or `--timeout`
//! has passed.

use std::future::Future;
use std::time::Duration;

use crate::operators::{OperatorError, hinted};
use leasehold_clock as clock;
use leasehold_config::LockConfig;
use leasehold_core::election::{BootTime, ForeignDocument, ResourceName};
use leasehold_core::lock::{
    Entry, EntryVersion, FoundLock, LockDocument, LockOperation, LockOutcome,
};
use leasehold_mongodb::store::mongo::lock::MongoLockStore;
use leasehold_mongodb::store::mongo::operators::{CollectionEntry, MongoCollection, Scope};
use leasehold_mongodb::store::{Answer, Failure, RetryPolicy};

pub(super) struct Calls<'a> {
    pub(super) locks: &'a MongoCollection,
    /// Maximum time of one attempt: `operation_timeout` for the server selection, plus
    /// `operation_timeout` for the answer.
    attempt_max: Duration,
    retry_interval: Duration,
    timeout: Duration,
}

pub(super) struct LockCalls<'a> {
    pub(super) calls: &'a Calls<'a>,
    pub(super) store: MongoLockStore,
    pub(super) name: ResourceName,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteResult {
    Applied,
    /// MongoDB did not acknowledge the write, but a later read shows its effect.
    Shown,
    /// The lock changed, so there is nothing to write.
    Rejected,
}

/// State of a lock after a write with an unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reread {
    /// The lock already has the state that the write would produce.
    Done,
    Unchanged,
    Changed,
}

impl<'a> Calls<'a> {
    pub(super) fn new(locks: &'a MongoCollection, config: &LockConfig, timeout: Duration) -> Self {
        Self {
            locks,
            attempt_max: 2 * config.timings.operation_timeout(),
            retry_interval: config.timings.retry_interval(),
            timeout,
        }
    }

    pub(super) fn of(&'a self, name: ResourceName) -> LockCalls<'a> {
        LockCalls {
            calls: self,
            store: self.locks.lock(name.clone()),
            name,
        }
    }

    pub(super) fn deadline(&self) -> BootTime {
        clock::boot_now() + self.timeout
    }

    pub(super) async fn list(&self) -> Result<Vec<CollectionEntry>, OperatorError> {
        let list = || self.locks.list(&Scope::Locks);
        self.read("list the locks", self.deadline(), list).await
    }

    /// Retries a read until it succeeds, fails permanently, or reaches the deadline.
    async fn read<T>(
        &self,
        doing: &'static str,
        deadline: BootTime,
        read: impl AsyncFn() -> Result<T, Failure>,
    ) -> Result<T, OperatorError> {
        let mut last = None;
        loop {
            let refusable = async {
                tokio::select! {
                    read = read() => read,
                    failure = self.locks.refused() => Err(failure),
                }
            };
            match tokio::time::timeout(self.attempt_within(deadline), refusable).await {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(failure)) if failure.retry == RetryPolicy::Reconfigure => {
                    return Err(OperatorError::Store { doing, failure });
                }
                Ok(Err(failure)) => last = Some(failure),
                Err(_) => last = self.locks.trouble().or(last),
            }
            if !self.pause(deadline).await {
                let failure = last.unwrap_or_else(|| self.unanswered());
                return Err(OperatorError::Store { doing, failure });
            }
        }
    }

    /// Sends a write once. A write that times out keeps running; its outcome counts as unknown.
    async fn attempted(
        &self,
        write: impl Future<Output = Answer<FoundLock>> + Send + 'static,
        deadline: BootTime,
    ) -> (LockOutcome, Failure) {
        let limit = self.attempt_within(deadline);
        let (outcome, failure) = match tokio::time::timeout(limit, tokio::spawn(write)).await {
            Ok(Ok(answer)) => (answer.outcome, answer.failure),
            // The driver panicked or has not answered. The servers may still apply the write later,
            // even if they are unreachable now.
            Ok(Err(_)) | Err(_) => {
                let why = self.locks.trouble();
                let why = why.map(|failure| failure.with_retry(RetryPolicy::WaitForServer));
                (LockOutcome::Unknown, why)
            }
        };
        (outcome, failure.unwrap_or_else(|| self.unanswered()))
    }

    /// Waits before the next attempt; returns false if that attempt would begin after the deadline.
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

impl LockCalls<'_> {
    /// Reads the lock with majority read concern; `None` if the lock does not exist.
    pub(super) async fn read(&self) -> Result<Option<LockDocument>, OperatorError> {
        self.document(false, self.calls.deadline()).await
    }

    /// Reads the lock. With `confirm`, the read is linearizable.
    async fn document(
        &self,
        confirm: bool,
        deadline: BootTime,
    ) -> Result<Option<LockDocument>, OperatorError> {
        let read = async || {
            let answer = self.store.perform(LockOperation::Read { confirm }).await;
            match answer.outcome {
                LockOutcome::Applied(found) => Ok(found),
                _ => Err(answer.failure.unwrap_or_else(|| self.calls.unanswered())),
            }
        };
        match self.calls.read("read the lock", deadline, read).await? {
            FoundLock::Lock(lock) => Ok(Some(lock)),
            FoundLock::Missing => Ok(None),
            FoundLock::Foreign(ForeignDocument::Lease(_)) => {
                Err(OperatorError::other_kind(&self.name, "lease"))
            }
            FoundLock::Foreign(why) => Err(OperatorError::Foreign {
                kind: "lock",
                name: self.name.clone(),
                why: why.to_string(),
            }),
        }
    }

    /// Returns the end of the last hold, in milliseconds of the server's clock; `None` if the lock
    /// has no history.
    pub(super) async fn last_end(&self, deadline: BootTime) -> Result<Option<i64>, OperatorError> {
        let history = || self.store.history();
        let history = self.calls.read("read the history", deadline, history);
        Ok(history.await?.iter().map(|end| end.ended_at.0).max())
    }

    pub(super) async fn perform(
        &self,
        doing: &'static str,
        operation: &LockOperation,
        reread: impl Fn(Option<LockDocument>) -> Reread,
    ) -> Result<WriteResult, OperatorError> {
        let send = || {
            let (store, operation) = (self.store.clone(), operation.clone());
            async move { store.perform(operation).await }
        };
        self.write(doing, send, async |found, _| Ok(reread(found)))
            .await
    }

    /// Performs a write, and retries it if it was not sent. After a write with an unknown outcome,
    /// reads the lock again, and calls `reread` to decide whether the write is retried.
    pub(super) async fn write<F>(
        &self,
        doing: &'static str,
        send: impl Fn() -> F,
        reread: impl AsyncFn(Option<LockDocument>, BootTime) -> Result<Reread, OperatorError>,
    ) -> Result<WriteResult, OperatorError>
    where
        F: Future<Output = Answer<FoundLock>> + Send + 'static,
    {
        let deadline = self.calls.deadline();
        let mut may_be_applied = None;
        loop {
            let (outcome, failure) = self.calls.attempted(send(), deadline).await;
            let is_final = failure.retry == RetryPolicy::Reconfigure;
            let unknown = match (outcome, may_be_applied.take()) {
                (LockOutcome::Applied(_), _) => return Ok(WriteResult::Applied),
                (LockOutcome::Rejected, None) => return Ok(WriteResult::Rejected),
                // If the server refused this write, the server will not apply it later.
                (LockOutcome::PrimaryOnly | LockOutcome::Failed | LockOutcome::Unknown, None)
                    if is_final =>
                {
                    return Err(OperatorError::Store { doing, failure });
                }
                (LockOutcome::Failed, None) => {
                    if !self.calls.pause(deadline).await {
                        return Err(OperatorError::Store { doing, failure });
                    }
                    continue;
                }
                (LockOutcome::PrimaryOnly | LockOutcome::Unknown, _) => failure,
                (LockOutcome::Rejected | LockOutcome::Failed, Some(unknown)) => unknown,
            };
            let reread = match self.document(true, deadline).await {
                Ok(lock) => reread(lock, deadline).await,
                Err(error) => Err(error),
            };
            match reread {
                Ok(Reread::Done) => return Ok(WriteResult::Shown),
                Ok(Reread::Changed) => return Ok(WriteResult::Rejected),
                Ok(Reread::Unchanged) if self.calls.pause(deadline).await => {}
                Ok(Reread::Unchanged) | Err(OperatorError::Store { .. }) => {
                    return Err(OperatorError::Unknown {
                        document: format!("lock {}", self.name),
                        failure: Box::new(unknown),
                        command: hinted("locks"),
                    });
                }
                Err(error) => return Err(error),
            }
            may_be_applied = Some(unknown);
        }
    }
}

pub(super) fn version(entry: &Entry) -> EntryVersion {
    EntryVersion {
        claim: entry.claim,
        revision: entry.revision,
    }
}
