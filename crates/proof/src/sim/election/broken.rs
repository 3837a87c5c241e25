//! Applies store operations with planted bugs in their filters and updates. Without a planted bug,
//! the reference implementation applies the operation.

use crate::election::mutation::{self, planted};
use crate::election::{Acquisition, Identity, Lease, Operation, Revision, Token, WallMillis};
use crate::reference::election as reference;

pub(crate) fn write(
    stored: &mut Option<Lease>,
    by: &Identity,
    at: WallMillis,
    operation: &Operation,
) -> bool {
    if mutation::active().is_none() {
        return reference::write(stored, by, at, operation);
    }
    let before = stored.clone();
    let mut sent = operation.clone();
    match (&mut sent, &mut *stored) {
        (Operation::Acquire(new), None) if planted!(FollowerUpserts) => {
            *stored = Some(reference::free(new.expected, Token::ZERO));
        }
        (Operation::Acquire(new), Some(lease)) => loosen(lease, new),
        (Operation::TakeOver { acquisition, .. }, Some(lease)) => loosen(lease, acquisition),
        (Operation::Renew { chain, .. } | Operation::Release { chain, .. }, Some(lease))
            if planted!(NoRevisionChain) =>
        {
            chain.push(lease.revision);
        }
        (Operation::Register { replaces, .. }, Some(lease)) if planted!(AnyStandbyReplaced) => {
            *replaces = lease.standby.as_ref().map(|standby| standby.session);
        }
        _ => {}
    }
    let matched = reference::write(stored, by, at, &sent);
    match (operation, stored) {
        (_, stored) if !matched => *stored = before,
        (Operation::Acquire(_) | Operation::TakeOver { .. }, Some(lease))
            if planted!(RequestKept) =>
        {
            let before = before.expect("it matched");
            (lease.request, lease.reserved_for) = (before.request, before.reserved_for);
        }
        (Operation::Register { session, .. }, Some(lease))
            if planted!(RegistrationChangesRevision) =>
        {
            lease.revision = Revision::from_bytes(session.bytes());
        }
        _ => {}
    }
    matched
}

/// Changes the acquisition or the document so that the filter of the acquisition matches too
/// often.
fn loosen(lease: &mut Lease, new: &mut Acquisition) {
    let standby = lease.standby.as_ref().map(|standby| standby.session);
    let exempt = planted!(StandbyWithoutCompareAndSet) && standby == Some(new.session);
    if planted!(NoCompareAndSet) || exempt {
        new.expected = lease.revision;
    }
    if planted!(TokenNotCompared) {
        lease.token = Token::ZERO;
    }
}
