use std::cmp::Ordering;

use super::{
    BootTime, CallId, Claim, Found, HistoryEntry, Identity, Lease, Reason, Reservation, Revision,
    Timings, Token,
};

/// Maximum number of pending acquisitions, of ended claims, and of possibly stored revisions of an
/// adopted acquisition. A read of the document resolves all of them. If a claim is dropped because
/// of this limit, the candidate waits for the claim's expiry.
pub(super) const OPEN_CLAIMS_MAX: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct OpenClaims {
    pub(super) exited: Option<ExitedClaim>,
    /// Acquisitions whose outcome is unknown. If stored, they are adopted or released.
    pub(super) pending: Vec<Attempt>,
    pub(super) ended: Vec<EndedClaim>,
    /// The ended claim whose release only the primary has acknowledged, until a read confirms it.
    pub(super) unconfirmed: Option<Claim>,
}

/// The claim of the previous process on this status directory, which has provably exited. The
/// current process takes over from the claim, or releases it. Late writes of the exited process may
/// still be applied, so each release names the revision that was read last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ExitedClaim {
    pub(super) claim: Claim,
    /// Latest instant at which an unsupervised workload may have read a status file that names the
    /// exited process as the leader.
    pub(super) demoted_at: BootTime,
}

impl ExitedClaim {
    /// If `lease` names this claim, returns the claim for its release.
    pub(super) fn stored_in(
        self,
        lease: &Lease,
        reserved_for: Option<Reservation>,
    ) -> Option<EndedClaim> {
        let holder = lease.holder.as_ref().filter(|it| it.claim == self.claim)?;
        Some(EndedClaim {
            claim: self.claim,
            chain: vec![lease.revision],
            entry: HistoryEntry {
                token: lease.token,
                identity: holder.identity.clone(),
                acquired_at: holder.acquired_at,
                reason: Reason::Died,
            },
            reserved_for,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Attempt {
    pub(super) call: CallId,
    pub(super) claim: Claim,
    /// Every revision of this claim that may be stored.
    pub(super) chain: Vec<Revision>,
    pub(super) token: Token,
    pub(super) replaces: (Revision, Token),
    pub(super) sent: BootTime,
    pub(super) timings: Timings,
    pub(super) overtaken: Option<Overtaken>,
    pub(super) cancelled: bool,
}

/// Reason why, given another claim's token, an acquisition in flight must not lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Overtaken {
    /// The other token is higher than the token that the acquisition replaces: another claim came
    /// first or followed, or the store was rolled back.
    ByToken(Token),
    /// The other token is equal, so the store was rolled back.
    InAnotherHistory,
}

/// A claim that ended, or an acquisition that must not lead. Neither can lead from then on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct EndedClaim {
    pub(super) claim: Claim,
    pub(super) chain: Vec<Revision>,
    pub(super) entry: HistoryEntry,
    pub(super) reserved_for: Option<Reservation>,
}

impl OpenClaims {
    pub(super) fn new(predecessor: Option<Claim>, now: BootTime) -> Self {
        Self {
            exited: predecessor.map(|claim| ExitedClaim {
                claim,
                demoted_at: now,
            }),
            ..Self::default()
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.ended.is_empty()
    }

    pub(super) fn contains(&self, claim: Claim) -> bool {
        self.pending_of(claim).is_some() || self.ended_of(claim).is_some()
    }

    pub(super) fn pending_of(&self, claim: Claim) -> Option<&Attempt> {
        self.pending.iter().find(|p| p.claim == claim)
    }

    pub(super) fn ended_of(&self, claim: Claim) -> Option<&EndedClaim> {
        self.ended.iter().find(|e| e.claim == claim)
    }

    pub(super) fn stored_in(&self, lease: &Lease, identity: &Identity) -> Option<EndedClaim> {
        let holder = lease.holder.as_ref()?;
        let pending = || {
            let attempt = self.pending_of(holder.claim)?;
            Some(attempt.end(HistoryEntry {
                token: lease.token,
                identity: identity.clone(),
                acquired_at: holder.acquired_at,
                reason: Reason::Shutdown,
            }))
        };
        self.ended_of(holder.claim).cloned().or_else(pending)
    }

    pub(super) fn add_pending(&mut self, attempt: Attempt) {
        push_bounded(&mut self.pending, attempt);
    }

    pub(super) fn extend_pending(&mut self, claim: Claim, revision: Revision) {
        if let Some(p) = self.pending.iter_mut().find(|p| p.claim == claim)
            && p.chain.len() < OPEN_CLAIMS_MAX
        {
            p.chain.push(revision);
        }
    }

    pub(super) fn remove_pending(&mut self, claim: Claim) {
        self.pending.retain(|p| p.claim != claim);
    }

    pub(super) fn add_ended(&mut self, ended: EndedClaim) {
        push_bounded(&mut self.ended, ended);
    }

    pub(super) fn releasing(&mut self, ended: &EndedClaim) {
        self.remove_pending(ended.claim);
        if self.ended_of(ended.claim).is_none() {
            self.add_ended(ended.clone());
        }
    }

    pub(super) fn remove_ended(&mut self, claim: Claim) {
        self.ended.retain(|e| e.claim != claim);
    }

    /// Returns a claim whose release was not acknowledged by a majority, if the lease of a read
    /// shows that the claim has been released.
    pub(super) fn confirm_release(&mut self, lease: &Lease) -> Option<Claim> {
        let unconfirmed = self
            .unconfirmed
            .take_if(|claim| lease.claim() != Some(*claim));
        // A free lease with the claim's token shows the end of the claim, because no other claim
        // has had this token, and no later write of the claim matches.
        let is_free = lease.holder.is_none();
        let ended = || self.ended.iter().find(|e| e.entry.token == lease.token);
        unconfirmed.or_else(|| ended().filter(|_| is_free).map(|e| e.claim))
    }

    /// Drops all claims of this process, because their revisions are gone. If a restore brings a
    /// claim back, that claim counts as another candidate's.
    pub(super) fn clear(&mut self) {
        self.pending.clear();
        self.ended.clear();
        self.unconfirmed = None;
    }

    /// Drops claims that another acquisition superseded. Returns true if `recorded` was dropped.
    pub(super) fn forget_superseded(&mut self, lease: &Lease, recorded: Option<Claim>) -> bool {
        let mut forgotten = false;
        let mut keep = |claim: Claim, superseded: bool| {
            let keep = !superseded || lease.claim() == Some(claim);
            forgotten |= !keep && recorded == Some(claim);
            keep
        };
        self.pending
            .retain(|p| keep(p.claim, p.token <= lease.token));
        self.ended
            .retain(|e| keep(e.claim, e.entry.token < lease.token));
        forgotten
    }

    pub(super) fn check_invariants(&self, leading: Option<Claim>) {
        let bounded = self.pending.len() <= OPEN_CLAIMS_MAX;
        assert!(bounded, "too many pending acquisitions");
        assert!(self.ended.len() <= OPEN_CLAIMS_MAX, "too many ended claims");
        let ended = leading.is_some_and(|claim| self.ended_of(claim).is_some());
        assert!(!ended, "a claim leads again after its end");
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct RejectedClaim {
    claim: Claim,
    chain: Vec<Revision>,
}

impl RejectedClaim {
    pub(super) fn of(EndedClaim { claim, chain, .. }: EndedClaim) -> Self {
        Self { claim, chain }
    }

    /// Returns true if `found` shows the claim with a revision that this process never sent.
    pub(super) fn is_renewed_by_another(&self, found: &Found) -> bool {
        matches!(found, Found::Lease(lease)
            if lease.claim() == Some(self.claim) && !self.chain.contains(&lease.revision))
    }
}

impl Attempt {
    pub(super) fn holds(&self, lease: &Lease) -> bool {
        lease.claim() == Some(self.claim)
    }

    pub(super) fn end(&self, entry: HistoryEntry) -> EndedClaim {
        EndedClaim {
            claim: self.claim,
            chain: self.chain.clone(),
            entry,
            reserved_for: None,
        }
    }

    /// Marks this acquisition as overtaken if the document shows another claim with a higher token
    /// than the token that this acquisition replaces. An event never proves a rollback, because an
    /// event may combine this acquisition's token with an older holder.
    pub(super) fn shown(&mut self, lease: &Lease, is_reply: bool) {
        // An operator who raises the token keeps the revision, so the acquisition may still match.
        if self.holds(lease) || lease.revision == self.replaces.0 {
            return;
        }
        let overtaken = match lease.token.cmp(&self.token) {
            Ordering::Equal if is_reply => Some(Overtaken::InAnotherHistory),
            Ordering::Equal if lease.holder.is_none() => None,
            Ordering::Less if lease.token <= self.replaces.1 => None,
            Ordering::Less | Ordering::Equal | Ordering::Greater => {
                Some(Overtaken::ByToken(lease.token))
            }
        };
        self.overtaken = self.overtaken.max(overtaken);
    }
}

fn push_bounded<T>(list: &mut Vec<T>, item: T) {
    if list.len() == OPEN_CLAIMS_MAX {
        list.remove(0);
    }
    list.push(item);
}
