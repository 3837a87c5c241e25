//! Converts documents to the core's types, and describes the store calls that read and write the
//! documents.

use std::time::Duration;

use bson::{Bson, Document};
use leasehold_core::election::{self, Lease};
use leasehold_core::lock::{self, LockDocument};
use leasehold_core::trace::Kind;
use leasehold_mongodb::store::mongo::operators::{CollectionEntry, Content};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum State {
    Missing,
    Lease(Box<Lease>),
    Lock(Box<LockDocument>),
    /// The document is neither a lease nor a lock of this schema.
    Foreign,
}

impl State {
    pub(crate) fn of(document: Option<&Document>) -> Self {
        let Some(document) = document else {
            return Self::Missing;
        };
        match CollectionEntry::of(document).map(|entry| entry.content) {
            Some(Content::Lease(record)) => Self::Lease(Box::new(record.lease)),
            Some(Content::Lock(record)) => Self::Lock(Box::new(record.lock)),
            Some(Content::Foreign(_)) | None => Self::Foreign,
        }
    }

    /// Returns the content as a machine of this kind sees it in a reply.
    pub(crate) fn seen_by(self, kind: Kind) -> Self {
        match (kind, &self) {
            (Kind::Election, Self::Lock(_)) | (Kind::Lock, Self::Lease(_)) => Self::Foreign,
            _ => self.comparable(),
        }
    }

    /// Removes the parts of a lock that depend on the time of the reply: the time itself, and the
    /// remaining minimum hold of entries whose work is done.
    fn comparable(mut self) -> Self {
        if let Self::Lock(lock) = &mut self {
            lock.store_now = election::WallMillis::default();
            for entry in lock.holders.iter_mut().filter(|entry| entry.work_done) {
                entry.min_hold = Duration::ZERO;
            }
        }
        self
    }
}

impl From<election::Found> for State {
    fn from(found: election::Found) -> Self {
        match found {
            election::Found::Lease(lease) => Self::Lease(Box::new(lease)),
            election::Found::Missing => Self::Missing,
            election::Found::Foreign(_) => Self::Foreign,
        }
    }
}

impl From<lock::FoundLock> for State {
    fn from(found: lock::FoundLock) -> Self {
        match found {
            lock::FoundLock::Lock(lock) => Self::Lock(Box::new(lock)).comparable(),
            lock::FoundLock::Missing => Self::Missing,
            lock::FoundLock::Foreign(_) => Self::Foreign,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Operation {
    Lease(election::Operation),
    Lock(lock::LockOperation),
}

impl Operation {
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Self::Lease(operation) => operation.as_str(),
            Self::Lock(operation) => operation.as_str(),
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Lease(_) => Kind::Election,
            Self::Lock(_) => Kind::Lock,
        }
    }

    /// Returns true for a linearizable read.
    pub(crate) fn is_confirming(&self) -> bool {
        match self {
            Self::Lease(operation) => *operation == election::Operation::Read { confirm: true },
            Self::Lock(operation) => *operation == lock::LockOperation::Read { confirm: true },
        }
    }

    pub(crate) fn is_creation(&self) -> bool {
        match self {
            Self::Lease(operation) => matches!(operation, election::Operation::Create { .. }),
            Self::Lock(operation) => matches!(operation, lock::LockOperation::Create { .. }),
        }
    }

    pub(crate) fn is_release(&self) -> bool {
        matches!(self, Self::Lease(election::Operation::Release { .. }))
    }

    pub(crate) fn is_read(&self) -> bool {
        match self {
            Self::Lease(operation) => matches!(operation, election::Operation::Read { .. }),
            Self::Lock(operation) => matches!(operation, lock::LockOperation::Read { .. }),
        }
    }
}

/// A document, both parsed and in its stored form.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) state: State,
    pub(crate) fields: Document,
}

impl Stored {
    pub(crate) fn of(document: Option<Document>) -> Self {
        Self {
            state: State::of(document.as_ref()),
            fields: document.unwrap_or_default(),
        }
    }

    /// Returns the elements of a list, or no elements if the list is missing.
    pub(crate) fn list(&self, field: &str) -> &[Bson] {
        let list = self.fields.get(field).and_then(Bson::as_array);
        list.map_or(&[], Vec::as_slice)
    }
}

pub(crate) fn changed<'a>(before: &'a Stored, after: &'a Stored) -> Vec<&'a str> {
    let (before, after) = (&before.fields, &after.fields);
    let gone = before.keys().filter(|key| !after.contains_key(key));
    let differs = after.keys().filter(|key| before.get(key) != after.get(key));
    differs.chain(gone).map(String::as_str).collect()
}

/// Returns the elements that were appended to a bounded list, or `None` if the list changed in
/// another way.
pub(crate) fn appended<'a>(before: &Stored, after: &'a Stored, field: &str) -> Option<&'a [Bson]> {
    let (old, new) = (before.list(field), after.list(field));
    // New elements displace the oldest elements. Try the longest match first, so that as few
    // elements as possible count as new.
    (0..=old.len().min(new.len()))
        .rev()
        .find(|kept| old.ends_with(&new[..*kept]) && (*kept == old.len() || new.len() == MOST))
        .map(|kept| &new[kept..])
}

/// Maximum number of elements of a bounded list.
const MOST: usize = 20;
