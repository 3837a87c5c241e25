use super::{
    BootTime, Candidate, ForeignDocument, Found, Lease, Notice, Revision, Session, Standby, Token,
};
use crate::claim::{Rollback, Watermarks};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct LeaseView {
    /// `None` until the first read.
    pub(super) document: Option<Found>,
    /// Instant at which a reply or event first showed this revision.
    pub(super) seen: BootTime,
    pub(super) marks: Watermarks,
}

impl LeaseView {
    pub(super) fn new(candidate: &Candidate) -> Self {
        let own = candidate.tunables.timings.lease_duration();
        let longest = candidate.lease_longest_remembered.unwrap_or_default();
        Self {
            document: None,
            seen: BootTime::default(),
            marks: Watermarks::new(candidate.token_remembered, own.max(longest)),
        }
    }

    pub(super) fn lease(&self) -> Option<&Lease> {
        self.document.as_ref().and_then(Found::lease)
    }

    pub(super) fn foreign(&self) -> Option<&ForeignDocument> {
        match &self.document {
            Some(Found::Foreign(why)) => Some(why),
            _ => None,
        }
    }

    pub(super) fn next_token(&self, lease: &Lease) -> Option<Token> {
        let highest = lease.token.max(self.marks.token_highest);
        planted!(HighestTokenForgotten, lease.token, highest).next()
    }

    /// Returns true if an event shows a change that the last read missed. Renewals do not count.
    pub(super) fn is_older_than(&self, lease: &Lease) -> bool {
        self.lease().is_none_or(|known| {
            let changed = lease.claim() != known.claim() || lease.paused != known.paused;
            lease.token >= known.token && changed
        })
    }

    pub(super) fn revision(&self) -> Option<Revision> {
        self.lease().map(|lease| lease.revision)
    }

    pub(super) fn is_standby(&self, session: Session) -> bool {
        let standby = self.lease().and_then(|lease| lease.standby.as_ref());
        standby.is_some_and(|standby| standby.session == session)
    }

    pub(super) fn note_seen(&mut self, lease: &Lease) {
        self.marks.note_document(lease.token);
        let declared = lease.holder.as_ref().map(|holder| holder.lease_duration);
        self.marks.note_declared(declared.into_iter());
    }

    /// Records the standby in the view of a leader, because a leader applies no events to its view.
    pub(super) fn note_standby(&mut self, standby: Option<Standby>) {
        if let Some(Found::Lease(lease)) = &mut self.document {
            lease.standby = standby;
        }
    }

    pub(super) fn rollback(&self, found: &Found) -> Option<Rollback> {
        match found {
            Found::Lease(lease) => self.marks.rollback(Some(lease.token)),
            Found::Missing => self.marks.rollback(None),
            Found::Foreign(_) => None,
        }
    }

    pub(super) fn strange(&self, found: &Found) -> Option<Notice> {
        match found {
            Found::Lease(lease) => {
                let holder = lease.holder.as_ref()?;
                let known = self.lease().and_then(Lease::claim) == Some(holder.claim);
                let declared = holder.lease_duration;
                (declared.valid().is_none() && !known).then(|| Notice::InvalidLeaseDuration {
                    identity: holder.identity.clone(),
                    millis: declared.millis,
                })
            }
            Found::Foreign(why) => {
                let known = matches!(self.document, Some(Found::Foreign(_)));
                (!known).then(|| Notice::Foreign { why: why.clone() })
            }
            Found::Missing => None,
        }
    }

    /// Stores the document; returns true if the revision has changed. If the revision, the claim
    /// and the token are unchanged, `seen` keeps its value. All three are compared, because a
    /// revision may repeat on a forked VM or in an edited document.
    pub(super) fn observe(&mut self, found: Found, now: BootTime) -> bool {
        let revision_before = self.revision();
        match &found {
            Found::Lease(lease) => {
                let same_token = self.lease().is_some_and(|l| l.token == lease.token);
                let same_claim = self.lease().is_some_and(|l| l.claim() == lease.claim());
                let same = (same_token && same_claim) || planted!(RevisionAlone);
                let unchanged = (self.revision() == Some(lease.revision) && same)
                    || (planted!(TokenCompared) && same_token)
                    || (planted!(SeenKeptAcrossRestart)
                        && self.document.is_none()
                        && self.seen > BootTime::default());
                if !unchanged || planted!(SeenCountsAgain) {
                    self.seen = now;
                }
                self.marks.document_token = Some(lease.token);
            }
            Found::Missing => self.marks.document_token = None,
            Found::Foreign(_) => {}
        }
        self.document = Some(found);
        self.revision() != revision_before
    }
}

#[cfg(proof)]
impl LeaseView {
    /// Copies the instant at which the previous process that used this status directory first saw
    /// the revision.
    pub(super) fn continue_from(&mut self, before: &Self) {
        self.seen = before.seen;
    }
}
