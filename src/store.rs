//! Where the lease is kept: the contract of a store, and MongoDB.
//!
//! A store decides nothing. It sends what an [`Operation`] says, and tells
//! apart what was applied, rejected, never sent, and not known.

pub mod mongo;

use std::fmt;
use std::future::Future;

use crate::election::{Operation, Outcome, Watch};

/// Keeps one lease.
pub trait Store: Send + Sync + 'static {
    /// Sends one operation and reports what became of it.
    ///
    /// The future is run to its end, however long that takes: the caller
    /// stops waiting after `operation_timeout`, but never drops it.
    fn perform(&self, operation: Operation) -> impl Future<Output = Answer> + Send;
}

/// What became of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// For the election.
    pub outcome: Outcome,
    /// For people, when it was neither applied nor rejected.
    pub failure: Option<Failure>,
}

/// Why an operation failed, without credentials and without the server's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// A constant phrase.
    pub kind: &'static str,
    /// The server's error code.
    pub code: Option<i32>,
    /// What is known of the place, and what to do about it.
    pub detail: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind)?;
        if let Some(code) = self.code {
            write!(f, " (code {code})")?;
        }
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        Ok(())
    }
}

/// What a store tells without being asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// From the change stream.
    Watch(Watch),
    /// Writes go to another server from now on.
    PrimaryChanged,
    /// The change stream ended or cannot be had: why, for people.
    WatchFailed(Failure),
    /// The request in the document cannot be understood: why, for people.
    RequestIgnored(&'static str),
}

/// The deployment that keeps the lease, for people: two daemons of one lease
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
