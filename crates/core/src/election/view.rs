//! The document as a candidate last saw it, and since when.

use std::time::Duration;

use super::input::Found;
use super::lease::{Lease, Revision, Standby, Token};
use super::time::BootTime;

/// The last observation of the document.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct View {
    pub(super) document: Document,
    /// Instant at which a reply or event first showed this revision.
    pub(super) seen: BootTime,
    /// True if the document must be read before the next write: nothing was read yet, or a write or
    /// an event showed that the view is behind.
    pub(super) behind: bool,
    /// Token of the document when last seen, by this process or by the previous one on the status
    /// directory; `None` if no document is known.
    document_token: Option<Token>,
    /// The longest valid lease duration seen by this process or the previous one, and at least the
    /// candidate's own.
    lease_longest: Duration,
    /// When the last answer of the store ceases to count. A reload does not shorten it, since
    /// the stream still reports at the pace of the durations before.
    pub(super) answers_until: Option<BootTime>,
}

/// The stored content as last seen.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Document {
    NotRead,
    Missing,
    Foreign(String),
    Lease(Lease),
}

/// Result of the comparison of a reply with earlier observations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plausible {
    Yes,
    /// The document is missing, or its token is lower than the one seen before.
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
            answers_until: None,
        }
    }

    /// Returns the lease, if the last observation was one.
    pub(super) fn lease(&self) -> Option<&Lease> {
        match &self.document {
            Document::Lease(lease) => Some(lease),
            Document::NotRead | Document::Missing | Document::Foreign(_) => None,
        }
    }

    pub(super) fn revision(&self) -> Option<Revision> {
        self.lease().map(|lease| lease.revision)
    }

    /// Returns the time to wait after a rollback of the store. No holder that was seen can have
    /// authority for longer.
    pub(super) fn lease_longest(&self) -> Duration {
        self.lease_longest
    }

    /// Records that a document with this token existed, and how long its holder may lead. Late
    /// replies and untrusted ones count too: if the document is found missing later, it was
    /// deleted.
    pub(super) fn note_seen(&mut self, lease: &Lease) {
        self.document_token = self.document_token.max(Some(lease.token));
        let declared = lease.holder.as_ref().and_then(|h| h.lease_duration.valid());
        self.lease_longest = self.lease_longest.max(declared.unwrap_or_default());
    }

    /// Records the standby of a leader, which does not observe events otherwise.
    pub(super) fn note_standby(&mut self, standby: Option<Standby>) {
        if let Document::Lease(lease) = &mut self.document {
            lease.standby = standby;
        }
    }

    /// Returns the document's token when last seen, by this process or the previous one.
    pub(super) fn document_token(&self) -> Option<Token> {
        self.document_token
    }

    /// Records that a document exists although it has not been read. If it is found missing later,
    /// it was deleted.
    pub(super) fn exists(&mut self) {
        self.document_token.get_or_insert(Token::ZERO);
    }

    /// Compares what was found with earlier observations.
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

    /// Stores what was found. An unchanged revision with unchanged claim and token keeps the
    /// instant when it was first seen; otherwise the instant is `now`. Ids are random, but ids of a
    /// forked machine or of an edited document may repeat.
    pub(super) fn observe(&mut self, found: Found, now: BootTime) {
        let document = match found {
            Found::Lease(lease) => {
                let same_token = self.lease().is_some_and(|l| l.token == lease.token);
                let claim = |lease: &Lease| lease.holder.as_ref().map(|holder| holder.claim);
                let same_claim = self.lease().is_some_and(|l| claim(l) == claim(&lease));
                let same = (same_token && same_claim) || planted!(RevisionAlone);
                let unchanged = (self.revision() == Some(lease.revision) && same)
                    || (planted!(TokenCompared) && same_token)
                    || (planted!(SeenKeptAcrossRestart)
                        && self.document == Document::NotRead
                        && self.seen > BootTime::default());
                if !unchanged || planted!(SeenCountsAgain) {
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
