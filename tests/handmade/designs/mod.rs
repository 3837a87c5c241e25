//! The designs, each in a file as its authors would write it.
//!
//! Their faults are theirs: none is planted. Expiry by the client's own wall
//! clock is what all of them have in common, since a TTL index, and a filter
//! such as `expireAt: {$lt: now}`, need a date.

mod counter;
mod find_and_modify;
mod locked_at;
mod pessimistic;
mod ttl_index;
mod version_check;

use std::time::Duration;

use mongodb::Collection;
use mongodb::bson::{DateTime, Document};
use mongodb::error::{Error, ErrorKind, Result, WriteFailure};
use serde::{Deserialize, Serialize};

pub(crate) use counter::Counter;
pub(crate) use find_and_modify::FindAndModify;
pub(crate) use locked_at::LockedAt;
pub(crate) use pessimistic::Pessimistic;
pub(crate) use ttl_index::TtlIndex;
pub(crate) use version_check::VersionCheck;

/// Which design.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Design {
    TtlIndex,
    LockedAt,
    FindAndModify,
    Counter { slots: i32 },
    Pessimistic,
    VersionCheck,
}

/// What all of them are made from.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub(crate) collection: Collection<Document>,
    pub(crate) name: String,
    pub(crate) owner: String,
    /// For how long the lock is taken, and extended.
    pub(crate) life: Duration,
}

/// A lock.
pub(crate) trait HandMade {
    /// One attempt; whether the lock is ours now.
    async fn acquire(&mut self) -> Result<bool>;
    /// Puts the expiry off while the work goes on.
    async fn extend(&self) -> Result<()>;
    /// Frees it; whether it was still ours, as far as the design can tell.
    async fn release(&self) -> Result<bool>;
}

/// The client's wall clock, and a span from it.
fn from_now(span: Duration) -> DateTime {
    DateTime::from_system_time(std::time::SystemTime::now() + span)
}

/// An insert that finds the lock there is told so by a duplicate key.
fn inserted<T>(result: Result<T>) -> Result<bool> {
    match result {
        Ok(_) => Ok(true),
        Err(error) if is_duplicate_key(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

fn is_duplicate_key(error: &Error) -> bool {
    match &*error.kind {
        ErrorKind::Write(WriteFailure::WriteError(error)) => error.code == 11000,
        ErrorKind::Command(error) => error.code == 11000,
        _ => false,
    }
}
