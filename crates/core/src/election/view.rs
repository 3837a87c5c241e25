//! What a candidate has seen of the document, and when.

use std::time::Duration;

use super::input::Found;
use super::lease::{Lease, Revision, Token};
use super::time::BootTime;

/// What was seen last.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct View {
    pub(super) document: Document,
    /// When the reply or event arrived that first showed this revision.
    pub(super) seen: BootTime,
    /// The document must be read before the next write: nothing was read yet,
    /// or a write or an event told that the view is behind.
    pub(super) behind: bool,
    /// The document's token when last seen, by this process or by the one
    /// that left its memory in the status directory; `None`: no document known.
    document_token: Option<Token>,
    /// The longest valid lease duration seen, here or by the process before,
    /// or one's own.
    lease_longest: Duration,
    /// When the store last answered.
    pub(super) contact: Option<BootTime>,
}

/// What is stored, as seen.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Document {
    NotRead,
    Missing,
    Foreign(String),
    Lease(Lease),
}

/// Whether a reply can be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plausible {
    Yes,
    /// The document is missing or its token lower than what was seen.
    WentBack {
        seen: Token,
        found: Option<Token>,
    },
}

impl View {
    pub(super) fn new(remembered: Token, lease_longest: Duration) -> Self {
        Self {
            document: Document::NotRead,
            seen: BootTime::default(),
            behind: true,
            document_token: (remembered > Token::ZERO).then_some(remembered),
            lease_longest,
            contact: None,
        }
    }

    /// The lease, if one was seen last.
    pub(super) fn lease(&self) -> Option<&Lease> {
        match &self.document {
            Document::Lease(lease) => Some(lease),
            Document::NotRead | Document::Missing | Document::Foreign(_) => None,
        }
    }

    pub(super) fn revision(&self) -> Option<Revision> {
        self.lease().map(|lease| lease.revision)
    }

    /// How long to wait when the store went back: nobody that was seen can
    /// have authority for longer.
    pub(super) fn lease_longest(&self) -> Duration {
        self.lease_longest
    }

    /// Notes that a document with this token existed, and how long its holder
    /// may lead, also if nobody waits for the reply that shows it or it is not
    /// believed: if it is found missing later, it was deleted.
    pub(super) fn heed(&mut self, lease: &Lease) {
        self.document_token = self.document_token.max(Some(lease.token));
        let declared = lease.holder.as_ref().and_then(|h| h.lease_duration.valid());
        self.lease_longest = self.lease_longest.max(declared.unwrap_or_default());
    }

    /// The document's token when it was last seen, here or by the process before.
    pub(super) fn document_token(&self) -> Option<Token> {
        self.document_token
    }

    /// There is a document, although it has not been read: if it is found
    /// missing later, it was deleted.
    pub(super) fn exists(&mut self) {
        self.document_token.get_or_insert(Token::ZERO);
    }

    /// Compares with what was seen before.
    pub(super) fn judge(&self, found: &Found) -> Plausible {
        let token = match found {
            Found::Lease(lease) => Some(lease.token),
            Found::Missing => None,
            Found::Foreign(_) => return Plausible::Yes,
        };
        match self.document_token {
            Some(seen) if token.is_none_or(|token| token < seen) => {
                Plausible::WentBack { seen, found: token }
            }
            Some(_) | None => Plausible::Yes,
        }
    }

    /// Takes over what was found. A revision that was seen before keeps its
    /// instant; a new one begins at `now`.
    pub(super) fn observe(&mut self, found: Found, now: BootTime) {
        let document = match found {
            Found::Lease(lease) => {
                let same_token = self.lease().is_some_and(|l| l.token == lease.token);
                let unchanged = self.revision() == Some(lease.revision)
                    || (planted!(TokenCompared) && same_token)
                    || (planted!(SeenNotReset) && self.lease().is_some())
                    || (planted!(SeenKeptAcrossRestart)
                        && self.document == Document::NotRead
                        && self.seen > BootTime::default());
                if !unchanged {
                    self.seen = now;
                }
                self.document_token = Some(lease.token);
                Document::Lease(lease)
            }
            Found::Missing => {
                self.document_token = None;
                Document::Missing
            }
            Found::Foreign(why) => Document::Foreign(why),
        };
        self.document = document;
    }
}
