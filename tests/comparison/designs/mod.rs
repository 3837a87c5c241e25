//! Common designs of hand-made locks. Each file contains one design, as a service's authors would
//! write it.
//!
//! The bugs are inherent in the designs; none is planted. Every design with an expiry uses the
//! client's wall clock, because TTL indexes and filters such as `expireAt: {$lt: now}` need a date.

mod counter;
mod find_and_modify;
mod locked_at;
mod pessimistic;
mod ttl_index;
mod version_check;

use std::time::Duration;

use mongodb::Collection;
use mongodb::bson::{DateTime, Document, doc};
use mongodb::error::{Error, ErrorKind, Result, WriteFailure};
use serde::{Deserialize, Serialize};

pub(crate) use counter::Counter;
pub(crate) use find_and_modify::FindAndModify;
pub(crate) use locked_at::LockedAt;
pub(crate) use pessimistic::Pessimistic;
pub(crate) use ttl_index::TtlIndex;
pub(crate) use version_check::VersionCheck;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Design {
    TtlIndex,
    LockedAt,
    FindAndModify,
    Counter { slots: i32 },
    Pessimistic,
    VersionCheck,
}

#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub(crate) collection: Collection<Document>,
    pub(crate) name: String,
    pub(crate) owner: String,
    /// Time from the acquisition or an extension until the lock expires.
    pub(crate) life: Duration,
}

impl Terms {
    /// Postpones the lock's expiry only if the caller owns the lock.
    async fn postpone_mine(&self) -> Result<()> {
        let mine = doc! { "_id": &self.name, "owner": &self.owner };
        let later = doc! { "$set": { "expireAt": from_now(self.life) } };
        self.collection.update_one(mine, later).await?;
        Ok(())
    }

    /// Deletes the lock only if the caller owns it. Returns false otherwise.
    async fn delete_mine(&self) -> Result<bool> {
        let mine = doc! { "_id": &self.name, "owner": &self.owner };
        Ok(self.collection.delete_one(mine).await?.deleted_count == 1)
    }
}

pub(crate) trait HandMade {
    /// Tries once to acquire the lock. Returns true if the caller now holds the lock.
    async fn acquire(&mut self) -> Result<bool>;
    async fn extend(&self) -> Result<()>;
    /// Returns true if the caller still owned the lock, as far as the design can tell.
    async fn release(&self) -> Result<bool>;
}

fn from_now(span: Duration) -> DateTime {
    DateTime::from_system_time(std::time::SystemTime::now() + span)
}

/// Returns false if the insert failed with a duplicate key, because the lock's document exists.
pub(crate) fn inserted<T>(result: Result<T>) -> Result<bool> {
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
