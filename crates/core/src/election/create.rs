//! Creation of a missing document, and what a success proves.
//!
//! A creation grants no authority, because the created lease is free.

use super::contend::Doing;
use super::effect::Operation;
use super::input::{Found, Outcome};
use super::lease::{Lease, Revision};
use super::view::Plausible;
use super::{Election, Turn};

impl Election {
    pub(super) fn create(&mut self, turn: &mut Turn<'_>) {
        let revision = Revision::random(turn.random);
        let call = self.outbox.call(Operation::Create {
            revision,
            token: self.view.token_highest(),
        });
        self.start(Doing::Creating {
            call,
            revision,
            overtaken: false,
        });
    }

    /// Records that a reply or event, trusted or not, showed another document during an insert.
    pub(super) fn shown_while_creating(&mut self, lease: &Lease) {
        if let Some(Doing::Creating {
            revision,
            overtaken,
            ..
        }) = self.doing()
        {
            *overtaken |= *revision != lease.revision;
        }
    }

    pub(super) fn created(&mut self, outcome: Outcome, overtaken: bool, turn: &mut Turn<'_>) {
        match outcome {
            Outcome::Applied(found) => {
                // Another document may have been seen while the insert was in flight. The success
                // of the insert proves that this document is gone, and its holder may still lead.
                // The same holds if the new document has the same token.
                match (self.view.judge(&found), &found) {
                    (Plausible::WentBack { seen, found }, _) => {
                        self.store_went_back(seen, found, turn);
                    }
                    (Plausible::Yes, Found::Lease(lease)) if overtaken => {
                        self.store_went_back(self.view.token_highest(), Some(lease.token), turn);
                    }
                    (Plausible::Yes, _) => {}
                }
                self.observe(found, turn);
            }
            Outcome::Rejected => {
                self.view.exists();
                self.reads.fall_behind(turn.now);
            }
            Outcome::Failed | Outcome::Unknown => self.retry_later(turn),
        }
    }
}
