//! What an operator sees before he breaks a lock: which entries have been
//! silent for as long as they declared.
//!
//! It contends for nothing and grants nothing to itself.

use std::time::Duration;

use super::document::LockDocument;
use super::operation::{Ending, Operation};
use super::sightings::{Patience, Sightings};
use crate::election::{BootTime, Token};

/// Watches a lock's entries by reading it again and again.
#[derive(Debug, Clone)]
pub struct Observer {
    sightings: Sightings,
    claim_time: Duration,
    token_highest: Token,
}

impl Observer {
    /// One that has seen nothing and gives a grantee `operation_timeout` to confirm.
    pub fn new(operation_timeout: Duration) -> Self {
        Self {
            sightings: Sightings::default(),
            claim_time: operation_timeout,
            token_highest: Token::ZERO,
        }
    }

    /// A read, answered at `now`, showed this.
    pub fn observe(&mut self, lock: &LockDocument, now: BootTime) {
        self.token_highest = self.token_highest.max(lock.token);
        self.sightings.note(lock, None, now);
    }

    /// What was seen, and since when.
    pub fn sightings(&self) -> &Sightings {
        &self.sightings
    }

    /// When the next entry will have been silent for long enough; it may have
    /// been before.
    pub fn next_death(&self) -> Option<BootTime> {
        self.sightings.next_death(self.patience())
    }

    /// Takes out all entries that have been silent for long enough by `now`;
    /// `None`: there are none. Those that changed since the last read stay.
    pub fn break_silent(&self, now: BootTime) -> Option<Operation> {
        let entries = self.sightings.dead(self.patience(), now);
        (!entries.is_empty()).then_some(Operation::Sweep {
            entries,
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
