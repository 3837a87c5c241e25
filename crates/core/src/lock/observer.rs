//! Observation of a lock before an operator breaks it: which entries have stayed unchanged for as
//! long as they declared.
//!
//! The observer does not contend, and it grants itself nothing.

use std::time::Duration;

use super::document::LockDocument;
use super::observations::{Observations, Patience};
use super::operation::{Ending, LockOperation};
use crate::election::{BootTime, Token};

/// Observes a lock's entries by repeated reads.
#[derive(Debug, Clone)]
pub struct Observer {
    observations: Observations,
    claim_time: Duration,
    token_highest: Token,
}

impl Observer {
    /// Creates an observer without observations, which gives a grantee `operation_timeout` to
    /// confirm.
    pub fn new(operation_timeout: Duration) -> Self {
        Self {
            observations: Observations::default(),
            claim_time: operation_timeout,
            token_highest: Token::ZERO,
        }
    }

    /// Records the document of a read that was answered at `now`.
    pub fn observe(&mut self, lock: &LockDocument, now: BootTime) {
        self.token_highest = self.token_highest.max(lock.token);
        self.observations.note(lock, None, now);
    }

    /// Returns the observations and their start times.
    pub fn observations(&self) -> &Observations {
        &self.observations
    }

    /// Returns when the next entry expires, possibly in the past.
    pub fn next_expiry(&self) -> Option<BootTime> {
        self.observations.next_expiry(self.patience())
    }

    /// Returns an eviction of all entries that have expired by `now`, or `None` if there are none.
    /// Entries that have changed since the last read are not removed.
    pub fn break_expired(&self, now: BootTime) -> Option<LockOperation> {
        let expired = self.observations.expired(self.patience(), now);
        (!expired.is_empty()).then(|| LockOperation::Evict {
            entries: expired.iter().map(|(claim, o)| o.seen(*claim)).collect(),
            me: None,
            ending: Ending::Broken,
            seen: self.token_highest,
        })
    }

    fn patience(&self) -> Patience {
        Patience {
            claim_time: self.claim_time,
            stagger: Duration::ZERO,
        }
    }
}
