//! What outlives this process: the newest claim, the highest token, and the
//! longest lease duration seen, for the next process on the status directory.
//!
//! Nothing here is decided; `decide.rs` and `reading.rs` use it.

use std::time::Duration;

use super::Election;
use super::effect::Effect;
use super::lease::{Claim, Lease, Token};

/// What the status directory was told last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Remembered {
    pub(super) claim: Option<Claim>,
    pub(super) token: Token,
    pub(super) lease_longest: Duration,
}

impl Election {
    /// Whatever becomes of a reply or an event: its token was used, and its
    /// holder may lead for as long as it declares.
    pub(super) fn heed(&mut self, lease: &Lease) {
        self.token_highest = self.token_highest.max(lease.token);
        self.view.heed(lease);
        self.shown_while_creating(lease);
    }

    /// Tells the status directory what the next process should know. A token
    /// without the duration that goes with it would make that one wait too
    /// short a time when the store went back.
    pub(super) fn remember(&mut self) {
        let Remembered {
            claim,
            token,
            lease_longest,
        } = self.remembered;
        if self.token_highest > token || self.view.lease_longest() > lease_longest {
            self.record(claim);
        }
    }

    /// The claim that was sent last is no proof of a death any more.
    pub(super) fn forget_claim(&mut self) {
        self.record(None);
    }

    pub(super) fn record(&mut self, claim: Option<Claim>) {
        let (token, lease_longest) = (self.token_highest, self.view.lease_longest());
        self.remembered = Remembered {
            claim,
            token,
            lease_longest,
        };
        self.effects.push_back(Effect::Remember {
            claim,
            token,
            lease_longest,
        });
    }
}
