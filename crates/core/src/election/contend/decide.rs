//! The decisions of a candidate without a claim. Each write of a follower needs a decision (I8),
//! apart from registrations and withdrawals of the standby.

use super::Contender;
use crate::election::claims::{Attempt, EndedClaim};
use crate::election::{
    BootTime, Found, HEAD_START, HistoryEntry, Holder, Identity, Lease, Notice, Reason,
    Reservation, Token,
};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Predecessor {
    Nobody,
    Myself,
    Dead {
        token: Token,
    },
    Expired {
        identity: Identity,
        token: Token,
        seen: BootTime,
    },
}

impl Predecessor {
    pub(super) fn succeeded(self, now: BootTime) -> (Reason, Option<Notice>) {
        let notice = match self {
            Self::Nobody => return (Reason::Acquired, None),
            Self::Myself => None,
            Self::Dead { token } => Some(Notice::Succeeded { token }),
            Self::Expired {
                identity,
                token,
                seen,
            } => Some(Notice::Overtook {
                identity,
                token,
                silent: now.since(seen),
            }),
        };
        (Reason::TookOver, notice)
    }
}

pub(super) enum Decision {
    Wait(Option<BootTime>),
    Create,
    /// Acquire the lease. The history entry, if any, is for the claim that still holds the lease.
    Acquire(Lease, Option<HistoryEntry>, Predecessor),
    Adopt(Attempt),
    Release(EndedClaim),
}

impl Contender {
    /// Returns the earliest instant at which this candidate may lead again.
    fn gate(&self) -> BootTime {
        let shown_until = self.workload.drain.map(|drain| drain.shown_until);
        let closed = self.waits.contend_from().max(shown_until);
        closed.unwrap_or_default()
    }

    pub(super) fn decision(&self, now: BootTime) -> Decision {
        if self.workload.runs() {
            return Decision::Wait(None);
        }
        match &self.view.document {
            Some(Found::Foreign(_)) if planted!(ForeignOverwritten) => Decision::Create,
            None | Some(Found::Foreign(_)) => Decision::Wait(None),
            Some(Found::Missing) if self.waits.unhealthy => Decision::Wait(None),
            Some(Found::Missing) if self.gate() > now => Decision::Wait(Some(self.gate())),
            Some(Found::Missing) => Decision::Create,
            Some(Found::Lease(lease)) => match (&lease.holder, self.announced(lease, now)) {
                (_, Some(acquire)) => acquire,
                (Some(holder), None) => self.decide_held(lease, holder, now),
                (None, None) => self.decide_free(lease, now),
            },
        }
    }

    /// Decides to acquire the lease if a hint announces a release that reserves the lease for this
    /// candidate. If the hint is false, or the release was rolled back, the acquisition is
    /// rejected.
    fn announced(&self, lease: &Lease, now: BootTime) -> Option<Decision> {
        let announced = self.reads.announced.as_ref().filter(|it| !it.tried);
        let released = &announced?.released;
        let for_this = released.reserved_for == self.me.identity;
        let is_new = released.revision != lease.revision;
        if !for_this || !is_new || lease.claim() != Some(released.claim) {
            return None;
        }
        let free = Lease {
            holder: None,
            revision: released.revision,
            reserved_for: Some(Reservation {
                identity: released.reserved_for.clone(),
                duration: HEAD_START,
            }),
            ..lease.clone()
        };
        let decision = self.decide_free(&free, now);
        matches!(decision, Decision::Acquire(..)).then_some(decision)
    }

    fn decide_free(&self, lease: &Lease, now: BootTime) -> Decision {
        if lease.paused || self.waits.unhealthy || !self.token_can_grow(lease) {
            return Decision::Wait(None);
        }
        let opens = match &lease.reserved_for {
            // All other candidates wait for this candidate, so it needs no jitter.
            Some(reserved) if reserved.identity == self.me.identity => BootTime::default(),
            Some(reserved) => {
                let reserved_until = self.view.seen + self.reserved_for(reserved, lease);
                reserved_until.max(self.waits.acquire_not_before)
            }
            None => self.waits.acquire_not_before,
        };
        let at = self.gate().max(opens);
        if at > now {
            Decision::Wait(Some(at))
        } else {
            Decision::Acquire(lease.clone(), None, Predecessor::Nobody)
        }
    }

    fn decide_held(&self, lease: &Lease, holder: &Holder, now: BootTime) -> Decision {
        let barred = lease.paused || self.waits.unhealthy || !self.token_can_grow(lease);
        let closed = barred || self.gate() > now;
        let entry = |reason| HistoryEntry {
            token: lease.token,
            identity: holder.identity.clone(),
            acquired_at: holder.acquired_at,
            reason,
        };
        // If this process never sent the revision, a process on a forked VM did, so the claim must
        // expire.
        let pending = self.claims.pending_of(holder.claim);
        if let Some(attempt) = pending.filter(|p| p.chain.contains(&lease.revision)) {
            return if closed || attempt.cancelled {
                self.release_of(attempt.end(entry(Reason::Requested)), now)
            } else {
                Decision::Adopt(attempt.clone())
            };
        }
        let ended = self.claims.ended_of(holder.claim);
        if let Some(ended) = ended.filter(|e| e.chain.contains(&lease.revision)) {
            #[cfg(proof)]
            if planted!(RenewedAfterRelease) {
                return Decision::Adopt(crate::election::mutation::revived(
                    ended,
                    self.me.timings(),
                    now,
                ));
            }
            // A candidate that gave way to a preferred standby does not acquire the lease again.
            return if closed || self.preference.gave_way {
                self.release_of(ended.clone(), now)
            } else {
                let entry = Some(ended.entry.clone());
                Decision::Acquire(lease.clone(), entry, Predecessor::Myself)
            };
        }
        #[cfg(proof)]
        if planted!(SessionAdopted) && holder.session == self.me.session {
            let stranger =
                crate::election::mutation::stranger(lease, holder, self.me.timings(), now);
            return Decision::Adopt(stranger);
        }
        if let Some(exited) = self.exited_claim()
            && let Some(from) = self.release_of_exited_from(barred)
        {
            return match from > now {
                true => Decision::Wait(Some(from)),
                false => Decision::Release(exited),
            };
        }
        if barred {
            return Decision::Wait(None);
        }
        let namesake = planted!(IdentityIsProof) && holder.identity == self.me.identity;
        let exited = self.claims.exited.map(|exited| exited.claim);
        let dead = exited == Some(holder.claim) || namesake;
        let expires = if dead {
            BootTime::default()
        } else {
            // The lease duration is measured on this candidate's clock, from when it first saw this
            // revision.
            let mine = planted!(OwnDuration).then(|| self.me.timings().lease_duration());
            let expires = self.view.seen + mine.unwrap_or(holder.lease_duration.duration());
            expires + self.head_start_of_others(lease)
        };
        let at = expires.max(self.gate());
        if at > now {
            return Decision::Wait(Some(at));
        }
        let from = if dead {
            Predecessor::Dead { token: lease.token }
        } else {
            Predecessor::Expired {
                identity: holder.identity.clone(),
                token: lease.token,
                seen: self.view.seen,
            }
        };
        Decision::Acquire(lease.clone(), Some(entry(Reason::TookOver)), from)
    }

    fn release_of(&self, ended: EndedClaim, now: BootTime) -> Decision {
        let from = self.release_from();
        if from <= now {
            return Decision::Release(ended);
        }
        let opens = Some(self.gate()).filter(|gate| *gate > now);
        Decision::Wait(opens.into_iter().chain([from]).min())
    }

    /// Returns the instant at which this candidate releases the claim of its exited predecessor;
    /// `None` if this candidate leads again instead. A candidate that may not lead now first waits
    /// for a retry interval, because its workload may soon be ready.
    fn release_of_exited_from(&self, barred: bool) -> Option<BootTime> {
        let noticed = self.exit_noticed_at()?.max(self.release_from());
        if self.me.releases_predecessor {
            return Some(noticed);
        }
        let started = self.claims.exited?.demoted_at;
        barred.then(|| noticed.max(started + self.me.timings().retry_interval()))
    }

    fn token_can_grow(&self, lease: &Lease) -> bool {
        self.view.next_token(lease).is_some()
    }

    /// Returns the earliest instant of a release. Until then, the workload may not have noticed the
    /// loss of leadership, or another candidate may still lead after a rollback.
    pub(super) fn release_from(&self) -> BootTime {
        let noticed = self.workload.drain.map(|drain| drain.until);
        noticed.max(self.waits.quarantine).unwrap_or_default()
    }
}
