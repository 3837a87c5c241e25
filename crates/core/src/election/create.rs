//! Making the document where there is none, and what a success proves.
//!
//! It gives no authority: what is made is a free lease.

use super::contend::Doing;
use super::effect::Operation;
use super::input::{Found, Outcome};
use super::lease::{Lease, Revision};
use super::view::Plausible;
use super::{Election, Turn};

impl Election {
    pub(super) fn create(&mut self, turn: &mut Turn<'_>) {
        let revision = Revision::random(turn.random);
        let call = self.call(Operation::Create {
            revision,
            token: self.token_highest,
        });
        self.start(Doing::Creating {
            call,
            revision,
            overtaken: false,
        });
    }

    /// A document was shown, believed or not.
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
                // A document may have been seen while the insert was under
                // way. That it succeeded proves that this one is gone, and its
                // holder may still lead; also if the new one has its token.
                match (self.view.judge(&found), &found) {
                    (Plausible::WentBack { seen, found }, _) => {
                        self.store_went_back(seen, found, turn);
                    }
                    (Plausible::Yes, Found::Lease(lease)) if overtaken => {
                        self.store_went_back(self.token_highest, Some(lease.token), turn);
                    }
                    (Plausible::Yes, _) => {}
                }
                self.observe(found, turn);
            }
            Outcome::Rejected => {
                self.view.exists();
                self.fall_behind(turn.now);
            }
            Outcome::Failed | Outcome::Unknown => self.retry_later(turn),
        }
    }
}
