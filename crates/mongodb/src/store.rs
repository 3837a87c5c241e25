//! Where leases and locks are kept: the contract of a store, and MongoDB.
//!
//! A store decides nothing. It sends what an operation says, and tells apart
//! what was applied, rejected, never sent, and not known.

mod deployment;
pub mod mongo;

use std::fmt;
use std::future::Future;

pub use self::deployment::{DeploymentId, KnownHome};

use leasehold_core::election::{Operation, Outcome, Watch};
use leasehold_core::lock;

/// Keeps one document: a lease, unless other operations are named.
pub trait Store<P = Operation, O = Outcome>: Send + Sync + 'static {
    /// Sends one operation and reports what became of it.
    ///
    /// The future is run to its end, however long that takes: the caller
    /// stops waiting after `operation_timeout`, but never drops it.
    fn perform(&self, operation: P) -> impl Future<Output = Answer<O>> + Send;

    /// Closes the change stream and opens another one, if the store has one.
    fn reopen_stream(&self) {}
}

/// The outcomes that every kind of operation has beside "applied".
pub trait CallOutcome: Send + 'static {
    /// The filter did not match.
    const REJECTED: Self;
    /// Provably never sent.
    const FAILED: Self;
    /// It may have been applied, or may land later.
    const UNKNOWN: Self;

    /// The word used in logs and metrics.
    fn as_str(&self) -> &'static str;
}

impl CallOutcome for Outcome {
    const REJECTED: Self = Self::Rejected;
    const FAILED: Self = Self::Failed;
    const UNKNOWN: Self = Self::Unknown;

    fn as_str(&self) -> &'static str {
        self.as_str()
    }
}

impl CallOutcome for lock::Outcome {
    const REJECTED: Self = Self::Rejected;
    const FAILED: Self = Self::Failed;
    const UNKNOWN: Self = Self::Unknown;

    fn as_str(&self) -> &'static str {
        match self {
            Self::Applied(_) => "applied",
            Self::Rejected => "rejected",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }
}

/// What became of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer<O = Outcome> {
    /// For the election, or for the lock.
    pub outcome: O,
    /// For people, when it was neither applied nor rejected.
    pub failure: Option<Failure>,
}

/// Why an operation failed, without credentials and without the server's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// A constant phrase.
    pub kind: &'static str,
    /// The user, host or file concerned, as it follows the phrase ("for user x").
    pub subject: String,
    /// The server's error code.
    pub code: Option<i32>,
    /// The cause, and the remedy.
    pub detail: String,
    /// What is needed to make it work.
    pub remedy: Remedy,
}

/// What has to change before a failed operation can succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Nothing that is known: trying again may do.
    Retry,
    /// A server has to be reached: trying again may do, for anything that is asked.
    Reach,
    /// The configuration or the rights: trying again gets the same answer.
    Change,
}

impl Failure {
    /// A failure that trying again may end.
    pub fn new(kind: &'static str, detail: impl Into<String>) -> Self {
        Self {
            kind,
            subject: String::new(),
            code: None,
            detail: detail.into(),
            remedy: Remedy::Retry,
        }
    }

    /// With the user, host or file concerned.
    #[must_use]
    pub fn of(mut self, subject: impl Into<String>) -> Self {
        self.subject = subject.into();
        self
    }

    /// With what has to change first.
    #[must_use]
    pub fn until(mut self, remedy: Remedy) -> Self {
        self.remedy = remedy;
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind)?;
        if !self.subject.is_empty() {
            write!(f, " {}", self.subject)?;
        }
        if let Some(code) = self.code {
            write!(f, " (code {code})")?;
        }
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        Ok(())
    }
}

/// What a store tells without being asked; `W` is what its change stream means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News<W = Watch> {
    /// From the change stream.
    Watch(W),
    /// Writes go to another server from now on.
    PrimaryChanged,
    /// The change stream ended or cannot be had: why, for people.
    WatchFailed(Failure),
    /// The request in the document cannot be understood: why, for people.
    RequestIgnored(&'static str),
    /// The server is not MongoDB but this product, which only has its protocol.
    Lookalike(&'static str),
}

/// The deployment that keeps the document, for people: two daemons of one lease
/// on different stores both lead, and only a look at this shows it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct StoreInfo {
    /// The replica set's name; `None` for a standalone server or before it is known.
    pub set: Option<String>,
    /// The database.
    pub database: String,
    /// The collection.
    pub collection: String,
}
