//! The published status of a candidate. Files and endpoints evaluate [`Status::at`] for each
//! answer, so no daemon answers "leader" past its deadline.

use super::{BootTime, ForeignDocument, Identity, Session, Token};
use crate::named::named;

named! {
    /// The role of a candidate. Exhaustive, because every output must name every role.
    pub enum Role {
        /// The candidate has authority.
        Leader = "leader",
        /// The candidate contends; another candidate may lead.
        Follower = "follower",
        /// An operator paused the lease, so no candidate leads.
        Paused = "paused",
        /// The candidate gives up leadership: it has no authority, and its workload is ending.
        Stopping = "stopping",
        /// The store has not been read yet, or has not answered for a lease duration.
        Unknown = "unknown",
    }
}

named! {
    /// Reason for the state of a candidate, in files, logs, history, Events and metrics.
    #[non_exhaustive]
    pub enum Reason {
        /// The candidate acquired a free lease.
        Acquired = "acquired",
        /// The candidate took over from an expired or exited holder, or from its own ended claim.
        TookOver = "took_over",
        /// The candidate renewed its lease. A renewal is never the reason for a role.
        Renewed = "renewed",
        /// The candidate could not renew before its deadline.
        Deadline = "deadline",
        /// The store rejected a renewal, because the claim no longer holds the lease.
        Rejected = "rejected",
        /// An operator or a signal asked the candidate to step down.
        Requested = "requested",
        /// An operator asked the candidate to step down in favor of another candidate.
        Transferred = "transferred",
        /// An operator paused the lease.
        Paused = "paused",
        /// The workload is unhealthy.
        Unhealthy = "unhealthy",
        /// The workload exited on its own.
        WorkloadExit = "workload_exit",
        /// The workload was killed, but was not confirmed gone in time.
        WorkloadStuck = "workload_stuck",
        /// The candidate is shutting down.
        Shutdown = "shutdown",
        /// The document was deleted or restored to an older state.
        StoreRolledBack = "store_went_back",
        /// Another process renews this process's claim, for example on a forked VM.
        Duplicate = "duplicate",
        /// The process exited without a release, and its end was proven afterwards. Only in the
        /// history, because an exited process has no state.
        Died = "died",
    }
}

/// The authority of a leader: its token and its deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Authority {
    /// The fencing token to send with each external effect.
    pub token: Token,
    /// The deadline: `sent + renew_deadline` of the last acknowledged renewal.
    pub valid_until: BootTime,
}

/// The presumed leader.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HolderView {
    /// Name of the holder.
    pub identity: Identity,
    /// Token of the holder.
    pub token: Token,
    /// Instant at which this candidate considers the holder expired. If this candidate is the
    /// holder, this is its own deadline.
    pub until: BootTime,
    /// True until this candidate has seen the holder write, because the holder may have exited
    /// earlier.
    pub unconfirmed: bool,
}

/// The answers of the store since the start.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum StoreAnswer {
    /// The store has not answered.
    None,
    /// The newest document is a lease, or there is no document.
    Usable,
    /// The newest document is not a lease of this version, for this reason.
    Foreign(ForeignDocument),
}

/// The published state of a candidate. Evaluate it with [`Status::at`] before showing it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Status {
    /// The role at the time of publication.
    pub role: Role,
    /// Present if and only if `role` is [`Role::Leader`].
    pub authority: Option<Authority>,
    /// The leader; `None` if the lease is free or expired, or the leader is unknown.
    pub holder: Option<HolderView>,
    /// Session of this candidate. Replaced if a duplicate is detected.
    pub session: Session,
    /// Number of role changes of this process.
    pub transitions: u64,
    /// Start of the current role.
    pub since: BootTime,
    /// Reason for the current role, if any. `None` before the first read, in an outage that did not
    /// cause the loss of the lease, and for a follower after an outage.
    pub reason: Option<Reason>,
    /// The highest token this candidate has seen.
    pub token_highest: Token,
    /// Instant at which the last acknowledged acquisition or renewal was sent.
    pub renewed_at: Option<BootTime>,
    /// The store's answers since the start.
    pub store: StoreAnswer,
    /// Token of the claim being given up, until its release is sent or the claim is lost.
    pub stepping_down: Option<Token>,
    /// Token of a lost leadership, until its workload has confirmed the loss or had time to notice.
    pub unnoticed: Option<Token>,
}

impl Status {
    /// Returns the status of a candidate that has read nothing yet.
    pub fn initial(session: Session, now: BootTime) -> Self {
        Self {
            role: Role::Unknown,
            authority: None,
            holder: None,
            session,
            transitions: 0,
            since: now,
            reason: None,
            token_highest: Token::ZERO,
            renewed_at: None,
            store: StoreAnswer::None,
            stepping_down: None,
            unnoticed: None,
        }
    }

    /// Returns the status at `now`, without an expired authority or holder.
    pub fn at(&self, now: BootTime) -> Self {
        let mut status = self.clone();
        if let Some(authority) = self.authority.filter(|a| a.valid_until <= now) {
            status.role = Role::Follower;
            status.authority = None;
            status.reason = Some(Reason::Deadline);
            status.since = authority.valid_until;
            status.transitions += 1;
        }
        status.holder = status.holder.filter(|h| h.until > now);
        status
    }

    /// Returns true if this candidate leads at `now`.
    pub fn leads_at(&self, now: BootTime) -> bool {
        self.authority.is_some_and(|a| a.valid_until > now)
    }
}

#[cfg(all(test, not(proof)))]
mod tests {
    use std::time::Duration;

    use super::*;

    fn leader(valid_until: BootTime) -> Status {
        let token = Token::new(7).expect("seven is not negative");
        let identity = Identity::new("a").expect("legal");
        Status {
            role: Role::Leader,
            authority: Some(Authority { token, valid_until }),
            holder: Some(HolderView {
                identity,
                token,
                until: valid_until,
                unconfirmed: false,
            }),
            ..Status::initial(Session::from_bytes([1; 16]), BootTime::default())
        }
    }

    #[test]
    fn i4_a_status_says_not_leader_from_its_deadline_on() {
        let deadline = BootTime::from_nanos(1_000);
        let status = leader(deadline);
        let before = deadline - Duration::from_nanos(1);
        assert!(status.leads_at(before));
        assert_eq!(status.at(before), status);

        assert!(!status.leads_at(deadline));
        let stale = status.at(deadline);
        assert_eq!((stale.role, stale.authority), (Role::Follower, None));
        assert_eq!((stale.holder, stale.reason), (None, Some(Reason::Deadline)));
        assert_eq!((stale.since, stale.transitions), (deadline, 1));
    }
}
