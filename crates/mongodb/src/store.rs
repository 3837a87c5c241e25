//! The store of leases and locks, and its implementation for MongoDB. The store makes no decisions.

mod deployment;
mod kind;
pub mod mongo;

use std::fmt;
use std::time::Duration;

pub use self::deployment::{DeploymentId, KnownHome};
pub use self::kind::StoreKind;
pub use self::mongo::FailoverSettings;

use tokio::sync::watch;

use leasehold_clock::duration::shown;
use leasehold_core::election::{
    ForeignDocument, Found, Operation, Outcome, Status, Timings, Watch,
};

/// Keeps one lease.
pub trait Store: Clone + Send + Sync + 'static {
    /// Sends one operation and returns its outcome. After `operation_timeout`, the caller stops
    /// waiting for the outcome, but still runs the future to completion.
    fn perform(&self, operation: Operation) -> impl Future<Output = Answer> + Send;

    /// Returns the address of the server that receives an operation, if known. Informational.
    fn server(&self) -> Option<String>;

    /// Closes the change stream and opens a new stream.
    fn reopen_stream(&self);

    /// Applies the timings after a reload.
    fn set_timings(&self, timings: Timings);

    /// Publishes the workload's health to operators. Informational.
    fn set_healthy(&self, healthy: bool);

    /// Answers the newest roll call. The answer may have to wait for an earlier answer, so the
    /// candidate's status is read only when the answer is sent.
    fn answer_roll_call(&self, status: watch::Receiver<Status>);
}

/// The result of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer<F = Found> {
    /// The outcome for the election or the lock.
    pub outcome: Outcome<F>,
    /// The reason if the operation failed or if its outcome is unknown.
    pub failure: Option<Failure>,
}

impl<F> Answer<F> {
    /// The result of an operation without a failure.
    pub fn of(outcome: Outcome<F>) -> Self {
        Self {
            outcome,
            failure: None,
        }
    }

    pub(crate) fn failed(outcome: Outcome<F>, failure: Failure) -> Self {
        Self {
            outcome,
            failure: Some(failure),
        }
    }
}

/// Reason why an operation failed, without credentials and without the server's text.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// A constant phrase that names the kind of failure.
    pub kind: &'static str,
    /// The user, host or file concerned, worded to follow the phrase ("for user x").
    pub subject: Box<str>,
    /// The server's error code.
    pub code: Option<i32>,
    /// The server's name for the error.
    pub name: Option<Box<str>>,
    /// The cause and the remedy, for humans.
    pub detail: String,
    /// The cause and the remedy without names of servers or users; empty if [`Failure::kind`] says
    /// enough.
    pub public: Box<str>,
    /// The condition that lets a retry succeed.
    pub retry: RetryPolicy,
}

/// The condition that lets a retry of a failed operation succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RetryPolicy {
    /// No condition is known. A retry may succeed.
    Retry,
    /// A server must be reachable. A retry may succeed.
    WaitForServer,
    /// The configuration or the permissions must change. Without a change, a retry fails too.
    Reconfigure,
}

pub(crate) const UNANSWERED: &str =
    "no majority, fsyncLock, overload or the network: see rs.status()";

impl Failure {
    /// Creates a failure that a retry may resolve.
    pub fn new(kind: &'static str, detail: impl Into<String>) -> Self {
        Self {
            kind,
            subject: Box::default(),
            code: None,
            name: None,
            detail: detail.into(),
            public: Box::default(),
            retry: RetryPolicy::Retry,
        }
    }

    pub(crate) fn lasting(kind: &'static str, detail: impl Into<String>) -> Self {
        Self::new(kind, detail).with_retry(RetryPolicy::Reconfigure)
    }

    /// Creates the failure of a call that was not answered within this time.
    pub fn no_answer(waited: Duration) -> Self {
        Self::new("no answer", UNANSWERED)
            .of(format!("within {}", shown(waited)))
            .with_retry(RetryPolicy::WaitForServer)
    }

    /// Adds the user, host or file concerned.
    #[must_use]
    pub fn of(mut self, subject: impl Into<Box<str>>) -> Self {
        self.subject = subject.into();
        self
    }

    /// Sets the condition that lets a retry succeed.
    #[must_use]
    pub fn with_retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = retry;
        self
    }

    /// Describes the failure, with the server's error name and code. Names no servers or users.
    pub fn summary(&self) -> String {
        let summary = self.kind.to_owned() + &self.server_error();
        match &*self.public {
            "" => summary,
            public => format!("{summary}: {public}"),
        }
    }

    fn server_error(&self) -> String {
        match (&self.name, self.code) {
            (Some(name), Some(code)) => format!(" ({name}, code {code})"),
            (None, Some(code)) => format!(" (code {code})"),
            (_, None) => String::new(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |separator: &str, text: &str| match text {
            "" => String::new(),
            text => format!("{separator}{text}"),
        };
        let (subject, detail) = (part(" ", &self.subject), part(": ", &self.detail));
        write!(f, "{}{subject}{}{detail}", self.kind, self.server_error())
    }
}

/// An unsolicited event from the store. `W` is the type of a change stream event.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreEvent<W = Watch> {
    /// The change stream reported this event.
    Watch(W),
    /// Writes go to another server from now on.
    PrimaryChanged,
    /// The change stream ended or cannot be opened.
    WatchFailed(Failure),
    /// Hints cannot be followed.
    HintsFailed(Failure),
    /// An operator asks which candidates contend.
    RollCalled,
    /// The request in the document is not valid, for this reason.
    RequestIgnored(&'static str),
    /// A server's description of itself. Sent once, after the first connection.
    Connected(StoreInfo),
    /// The server is the named product, which speaks MongoDB's protocol but is not MongoDB.
    Lookalike(&'static str),
    /// The replica set's election settings. Sent once, after the first connection.
    Failover(Result<FailoverSettings, Failure>),
}

/// The deployment that stores a document. Informational: helps humans notice that two deployments
/// store one lease.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct StoreInfo {
    /// The kind of deployment.
    pub kind: StoreKind,
    /// The replica set's name; `None` without a set.
    pub set: Option<String>,
    /// The set's id, as [`DeploymentId::id`].
    pub set_id: Option<String>,
    /// The database that contains the document.
    pub database: String,
    /// The collection that contains the document.
    pub collection: String,
}

impl StoreInfo {
    /// Returns a description for humans, such as `replica set rs0`, safe to show on a terminal.
    pub fn describe(&self) -> String {
        match (self.kind, &self.set) {
            (StoreKind::ReplicaSet, Some(set)) => format!("replica set {}", set.escape_debug()),
            (StoreKind::ReplicaSet, None) => "replica set".to_owned(),
            (StoreKind::Sharded, _) => "sharded cluster through routers".to_owned(),
            (StoreKind::Standalone, _) => "standalone server".to_owned(),
        }
    }
}

/// Explains that a document is not a `wanted` (lease or lock) of this version. For a newer or
/// damaged document, the remedy must not be another lease name, because one replica could then lead
/// under each name.
pub fn foreign_document(why: &ForeignDocument, wanted: &str) -> String {
    match why.is_of_other_kind() {
        true => format!("{why}; choose another {wanted} name"),
        false => format!(
            "the document of this name is not a {wanted} of this version: {why}; upgrade this \
             program, or restore the document"
        ),
    }
}
