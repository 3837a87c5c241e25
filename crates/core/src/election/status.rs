//! What a candidate says of itself: a deadline, never a flag.
//!
//! A [`Status`] travels to every surface through one watch channel. A surface
//! asks [`Status::at`] for the truth at the instant of the question, so a
//! daemon that was frozen past its deadline never answers "leader".

use std::fmt;

use super::lease::{Identity, Session, Token};
use super::time::BootTime;

/// What a candidate is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// It has authority.
    Leader,
    /// It contends, somebody else may lead.
    Follower,
    /// An operator paused the lease: nobody leads.
    Paused,
    /// It gives up leadership: no authority, the workload is ending.
    Stopping,
    /// The store has not been read yet, or not for a lease duration.
    Unknown,
}

impl Role {
    /// All roles, for surfaces that list them.
    pub const ALL: [Self; 5] = [
        Self::Leader,
        Self::Follower,
        Self::Paused,
        Self::Stopping,
        Self::Unknown,
    ];

    /// The word used in files, logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Follower => "follower",
            Self::Paused => "paused",
            Self::Stopping => "stopping",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a candidate is what it is: one closed list for file, log, history,
/// Event and metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// It acquired a free lease.
    Acquired,
    /// It took over from an expired holder.
    TookOver,
    /// It renewed its lease. No role has this reason: a leader keeps the one for
    /// which it began to lead.
    Renewed,
    /// It could not renew before its deadline.
    Deadline,
    /// The store said that the lease is no longer its own.
    Rejected,
    /// An operator, or a signal, asked it to step down.
    Requested,
    /// An operator asked it to step down in favour of another.
    Transferred,
    /// An operator paused the lease.
    Paused,
    /// Its workload is unhealthy.
    Unhealthy,
    /// Its workload ended.
    WorkloadExit,
    /// It is shutting down.
    Shutdown,
    /// The document was deleted or restored to an older state.
    StoreWentBack,
    /// Another process renews with this one's claim: a forked machine.
    Duplicate,
}

impl Reason {
    /// All reasons, for surfaces that list them.
    pub const ALL: [Self; 13] = [
        Self::Acquired,
        Self::TookOver,
        Self::Renewed,
        Self::Deadline,
        Self::Rejected,
        Self::Requested,
        Self::Transferred,
        Self::Paused,
        Self::Unhealthy,
        Self::WorkloadExit,
        Self::Shutdown,
        Self::StoreWentBack,
        Self::Duplicate,
    ];

    /// The word used in files, logs, history and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Acquired => "acquired",
            Self::TookOver => "took_over",
            Self::Renewed => "renewed",
            Self::Deadline => "deadline",
            Self::Rejected => "rejected",
            Self::Requested => "requested",
            Self::Transferred => "transferred",
            Self::Paused => "paused",
            Self::Unhealthy => "unhealthy",
            Self::WorkloadExit => "workload_exit",
            Self::Shutdown => "shutdown",
            Self::StoreWentBack => "store_went_back",
            Self::Duplicate => "duplicate",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The authority of a leader: its token and until when it lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Authority {
    /// The fencing token to send with each effect on the outside.
    pub token: Token,
    /// The deadline: `sent + renew_deadline` of the last acknowledged renewal.
    pub valid_until: BootTime,
}

/// Who is believed to lead, and until when this candidate would believe it
/// without a further sign.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HolderView {
    /// Its name.
    pub identity: Identity,
    /// Its token.
    pub token: Token,
    /// When this candidate would call it expired; its own deadline if it is this candidate.
    pub until: BootTime,
}

/// What a candidate publishes. Ask [`Status::at`] before you show it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Status {
    /// The role when this was published.
    pub role: Role,
    /// Present exactly when `role` is [`Role::Leader`].
    pub authority: Option<Authority>,
    /// Who leads; `None` when free, expired or not known.
    pub holder: Option<HolderView>,
    /// This start of this candidate (a new one after a duplicate was seen).
    pub session: Session,
    /// How often this process changed its role.
    pub transitions: u64,
    /// When the role began.
    pub since: BootTime,
    /// Why the role is what it is; `None` before the first read.
    pub reason: Option<Reason>,
    /// The highest token this candidate has seen.
    pub token_highest: Token,
    /// When the last acknowledged renewal was sent; `None` before the first.
    pub renewed_at: Option<BootTime>,
    /// Whether the store has been reached since the start.
    pub store_reached: bool,
    /// The token whose workload is waited for: present from the step-down until
    /// the release is sent.
    pub stepping_down: Option<Token>,
    /// The token of a leadership that was lost and whose workload may not have
    /// noticed: nothing is released until it confirms, or has had its time.
    pub unnoticed: Option<Token>,
}

impl Status {
    /// A candidate that has just started and read nothing.
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
            store_reached: false,
            stepping_down: None,
            unnoticed: None,
        }
    }

    /// The truth at `now`: a leader past its deadline is a follower, a holder
    /// past its time is none.
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

    /// Whether this candidate leads at `now`.
    pub fn leads_at(&self, now: BootTime) -> bool {
        self.authority.is_some_and(|a| a.valid_until > now)
    }
}

#[cfg(test)]
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
