//! The filter and the update of each write of a lease.
//!
//! `store/mongo/any_bson.rs` compares this file with the shipped filters on random documents, and
//! `tests/store_faults/filters.rs` compares it with a real server.

use leasehold_core::election::{
    Acquisition, Claim, Found, HistoryEntry, Holder, Identity, Lease, Operation, Outcome, Revision,
    Standby, Token, WallMillis,
};

/// Applies a write that was sent when the sender's wall clock showed `at`. Returns true if the
/// filter of the write matched; a read never matches.
pub fn write(
    stored: &mut Option<Lease>,
    by: &Identity,
    at: WallMillis,
    operation: &Operation,
) -> bool {
    match operation {
        Operation::Read { confirm: _ } => false,
        Operation::Create { revision, token } => {
            let absent = stored.is_none();
            if absent {
                *stored = Some(free(*revision, *token));
            }
            absent
        }
        Operation::Acquire(new) => acquire(stored, by, at, new, None),
        Operation::TakeOver {
            acquisition,
            holder,
            ended: _,
        } => acquire(stored, by, at, acquisition, Some(*holder)),
        Operation::Renew {
            claim,
            revision,
            chain,
        } => change_mine(stored, *claim, chain, |lease| lease.revision = *revision),
        Operation::Release {
            claim,
            revision,
            chain,
            ended: _,
            reserved_for,
        } => change_mine(stored, *claim, chain, |lease| {
            lease.revision = *revision;
            lease.holder = None;
            lease.reserved_for.clone_from(reserved_for);
        }),
        Operation::Register {
            holder,
            session,
            priority,
            replaces,
        } => {
            let vacant = |lease: &&mut Lease| {
                let standby = lease.standby.as_ref().map(|standby| standby.session);
                let as_seen = standby == *replaces;
                lease.holder.as_ref().is_some_and(|h| h.claim == *holder) && as_seen
            };
            let standby = Standby {
                session: *session,
                identity: by.clone(),
                priority: *priority,
            };
            let found = stored.as_mut().filter(vacant);
            found.map(|lease| lease.standby = Some(standby)).is_some()
        }
        Operation::Withdraw { session } => {
            let mine = |lease: &&mut Lease| {
                (lease.standby.as_ref()).is_some_and(|standby| standby.session == *session)
            };
            let found = stored.as_mut().filter(mine);
            found.map(|lease| lease.standby = None).is_some()
        }
    }
}

/// Returns the history entry that a write adds to the lease when the write's filter matches.
pub fn ends(operation: &Operation) -> Option<&HistoryEntry> {
    match operation {
        Operation::TakeOver { ended, .. } | Operation::Release { ended, .. } => Some(ended),
        Operation::Read { .. }
        | Operation::Create { .. }
        | Operation::Acquire(_)
        | Operation::Renew { .. }
        | Operation::Register { .. }
        | Operation::Withdraw { .. } => None,
    }
}

/// Returns the outcome of an acknowledged write.
pub fn outcome(matched: bool, stored: Option<&Lease>) -> Outcome {
    if matched {
        Outcome::Applied(found(stored))
    } else {
        Outcome::Rejected
    }
}

/// Returns the result of a read.
pub fn found(stored: Option<&Lease>) -> Found {
    stored.map_or(Found::Missing, |lease| Found::Lease(lease.clone()))
}

/// Returns a newly created lease.
pub fn free(revision: Revision, token: Token) -> Lease {
    Lease {
        token,
        revision,
        holder: None,
        paused: false,
        request: None,
        reserved_for: None,
        standby: None,
    }
}

fn acquire(
    stored: &mut Option<Lease>,
    by: &Identity,
    at: WallMillis,
    new: &Acquisition,
    from: Option<Claim>,
) -> bool {
    let Acquisition {
        claim,
        revision,
        token,
        expected,
        session,
        lease_duration,
        renew_interval,
    } = new;
    let matching = |lease: &&mut Lease| {
        lease.revision == *expected
            && !lease.paused
            && lease.token < *token
            && lease.holder.as_ref().map(|h| h.claim) == from
    };
    let Some(lease) = stored.as_mut().filter(matching) else {
        return false;
    };
    *lease = Lease {
        token: *token,
        revision: *revision,
        holder: Some(Holder {
            identity: by.clone(),
            session: *session,
            claim: *claim,
            acquired_at: at,
            lease_duration: *lease_duration,
            renew_interval: *renew_interval,
            token: Some(*token),
        }),
        paused: lease.paused,
        request: None,
        reserved_for: None,
        standby: None,
    };
    true
}

/// Applies `change` if the filter of renewals and releases matches.
fn change_mine(
    stored: &mut Option<Lease>,
    claim: Claim,
    chain: &[Revision],
    change: impl FnOnce(&mut Lease),
) -> bool {
    let matching = |lease: &&mut Lease| {
        let mine = lease.holder.as_ref().is_some_and(|h| h.claim == claim);
        mine && chain.contains(&lease.revision)
    };
    let Some(lease) = stored.as_mut().filter(matching) else {
        return false;
    };
    change(lease);
    true
}
