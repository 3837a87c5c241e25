//! A lock and its writes, to try if a collection accepts them.

use mongodb::bson::{DateTime, Document};

use super::{document, update};
use leasehold_core::election::{Claim, Declared, Identity, Revision, Session, Token};
use leasehold_core::lock::{EntryMode, NewEntry};

const DURATION: Declared = Declared { millis: 24_000 };

/// Returns a lock, and filters and pipelines: the first contender acquires it, a second waits, and
/// the first leaves. In between, each list of the document has an entry.
pub(in crate::store::mongo) fn contention(
    name: &str,
    identity: &Identity,
    now: DateTime,
) -> (Document, [(Document, Vec<Document>); 3]) {
    let contender = |number| NewEntry {
        claim: Claim::from_bytes([number; 16]),
        session: Session::from_bytes([number; 16]),
        mode: EntryMode::Exclusive,
        revision: Revision::from_bytes([number; 16]),
        slots: 0,
        lease_duration: DURATION,
    };
    let (holder, waiter) = (contender(1), contender(2));
    let (seen, mine) = (Token::ZERO, [holder.revision]);
    let join = |entry: &NewEntry| update::join(name, entry, seen, false, identity, now);
    let leave = update::leave(name, (holder.claim, &mine), (None, 0), seen, now);
    let lock = document::create(name, seen);
    (lock, [join(&holder), join(&waiter), leave])
}
