//! State that outlives this process: the newest claim, the highest token, and the longest lease
//! duration seen, recorded for the next process on the status directory.
//!
//! This module makes no decisions; `decide.rs` and `reading.rs` use its state.

use std::time::Duration;

use super::Election;
use super::effect::Effect;
use super::lease::{Claim, Lease, Token};

/// The values last recorded in the status directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct RecordedState {
    pub(super) claim: Option<Claim>,
    pub(super) token: Token,
    pub(super) lease_longest: Duration,
}

impl Election {
    /// Records what a reply or event shows, even if it is late or not trusted: the token was used,
    /// and its holder may lead for the declared duration.
    pub(super) fn note_seen(&mut self, lease: &Lease) {
        self.view.note_seen(lease);
        self.shown_while_creating(lease);
    }

    /// Records new values in the status directory for the next process. A token without its
    /// duration would make that process wait too briefly after a rollback of the store.
    pub(super) fn remember(&mut self) {
        let RecordedState {
            claim,
            token,
            lease_longest,
        } = self.recorded;
        if self.view.token_highest() > token || self.view.lease_longest() > lease_longest {
            self.record(claim);
        }
    }

    /// Removes the claim from the record, because it no longer proves that its process has exited.
    pub(super) fn forget_claim(&mut self) {
        self.record(None);
    }

    pub(super) fn record(&mut self, claim: Option<Claim>) {
        let (token, lease_longest) = (self.view.token_highest(), self.view.lease_longest());
        self.recorded = RecordedState {
            claim,
            token,
            lease_longest,
        };
        self.outbox.push(Effect::Remember {
            claim,
            token,
            lease_longest,
        });
    }
}
