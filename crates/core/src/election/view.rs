//! The document as a candidate last saw it, and since when.

use std::time::Duration;

use super::candidate::Candidate;
use super::effect::Notice;
use super::input::Found;
use super::lease::{Lease, Revision, Session, Standby, Token};
use super::time::BootTime;

/// The last observation of the document.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct LeaseView {
    document: Document,
    /// Instant at which a reply or event first showed this revision.
    seen: BootTime,
    /// Token of the document when last seen, by this process or by the previous one on the status
    /// directory; `None` if no document is known.
    document_token: Option<Token>,
    /// The highest token that was ever used, as far as this candidate and the previous one know.
    token_highest: Token,
    /// The longest valid lease duration seen by this process or the previous one, and at least the
    /// candidate's own.
    lease_longest: Duration,
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

impl LeaseView {
    /// Begins with what the previous process recorded.
    pub(super) fn new(candidate: &Candidate) -> Self {
        let remembered = candidate.token_remembered;
        let own = candidate.tunables.timings.lease_duration();
        let longest = candidate.lease_longest_remembered;
        Self {
            document: Document::NotRead,
            seen: BootTime::default(),
            document_token: (remembered > Token::ZERO).then_some(remembered),
            token_highest: remembered,
            lease_longest: longest.map_or(own, |longest| longest.max(own)),
        }
    }

    /// Returns the lease, if the last observation was one.
    pub(super) fn lease(&self) -> Option<&Lease> {
        match &self.document {
            Document::Lease(lease) => Some(lease),
            Document::NotRead | Document::Missing | Document::Foreign(_) => None,
        }
    }

    pub(super) fn document(&self) -> &Document {
        &self.document
    }

    /// Returns the instant at which the revision was first seen.
    pub(super) fn seen(&self) -> BootTime {
        self.seen
    }

    pub(super) fn token_highest(&self) -> Token {
        self.token_highest
    }

    /// Returns the token of an acquisition of `lease`; `None` at the end of the range.
    pub(super) fn next_token(&self, lease: &Lease) -> Option<Token> {
        let highest = if planted!(HighestTokenForgotten) {
            Token::ZERO
        } else {
            self.token_highest
        };
        lease.token.max(highest).next()
    }

    /// Returns true if an event of a late stream may show more than the last read did. Renewals of
    /// the known holder do not, because they are read when they are expected.
    pub(super) fn is_older_than(&self, lease: &Lease) -> bool {
        let Some(known) = self.lease() else {
            return true;
        };
        let claim = |lease: &Lease| lease.holder.as_ref().map(|holder| holder.claim);
        let changed = claim(lease) != claim(known) || lease.paused != known.paused;
        lease.token >= known.token && changed
    }

    pub(super) fn revision(&self) -> Option<Revision> {
        self.lease().map(|lease| lease.revision)
    }

    /// Returns true if this session is registered as the standby.
    pub(super) fn is_standby(&self, session: Session) -> bool {
        let standby = self.lease().and_then(|lease| lease.standby.as_ref());
        standby.is_some_and(|standby| standby.session == session)
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
        self.note_used(lease.token);
        self.document_token = self.document_token.max(Some(lease.token));
        let declared = lease.holder.as_ref().and_then(|h| h.lease_duration.valid());
        self.lease_longest = self.lease_longest.max(declared.unwrap_or_default());
    }

    /// Records that a token was used.
    pub(super) fn note_used(&mut self, token: Token) {
        self.token_highest = self.token_highest.max(token);
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

    /// Returns the notice of an unrecognized document, or of a declared duration out of range, if it
    /// was not found before.
    pub(super) fn strange(&self, found: &Found) -> Option<Notice> {
        match found {
            Found::Lease(lease) => {
                let holder = lease.holder.as_ref()?;
                let known = self.lease().and_then(|lease| lease.holder.as_ref());
                let known = known.is_some_and(|known| known.claim == holder.claim);
                let declared = holder.lease_duration;
                (declared.valid().is_none() && !known).then(|| Notice::InvalidLeaseDuration {
                    identity: holder.identity.clone(),
                    millis: declared.millis,
                })
            }
            Found::Foreign(why) => {
                let known = matches!(self.document, Document::Foreign(_));
                (!known).then(|| Notice::Foreign { why: why.clone() })
            }
            Found::Missing => None,
        }
    }

    /// Stores what was found; returns true if its revision differs from the last revision. An
    /// unchanged revision, with unchanged claim and token, keeps the instant at which it was first
    /// seen; any other revision gets `now`. Ids are random, but the ids of a forked machine or of an
    /// edited document may repeat.
    pub(super) fn observe(&mut self, found: Found, now: BootTime) -> bool {
        let revision_before = self.revision();
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
        self.revision() != revision_before
    }
}

#[cfg(proof)]
impl LeaseView {
    /// Copies the instant at which the previous process on the same directory first saw the
    /// revision.
    pub(super) fn continue_from(&mut self, before: &Self) {
        self.seen = before.seen;
    }
}

#[cfg(all(test, not(proof)))]
impl LeaseView {
    /// Sets the highest token, even to a token that no input leads to.
    pub(super) fn set_token_highest(&mut self, token: Token) {
        self.token_highest = token;
    }
}
