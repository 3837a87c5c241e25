//! An acquisition or a takeover clears the request and the reservation, which were meant for the
//! previous claim (*Requests* in `docs/protocol.md`).

use super::{Violation, require, reservation, with};
use crate::election::{Lease, Request, RequestKind, Revision, Token};
use crate::reference::election::free;

pub(crate) fn check(lease: &Lease) -> Option<Violation> {
    let clean = lease.request.is_none() && lease.reserved_for.is_none();
    require(clean, "acquisitions begin clean", &lease)
}

#[test]
fn requests_for_another_claim_are_found() {
    let clean = free(Revision::from_bytes([1; 16]), Token::ZERO);
    assert_eq!(check(&clean), None);
    let (kind, token) = (RequestKind::StepDown, Token::ZERO);
    let asked = with(clean.clone(), |it| {
        it.request = Some(Request { kind, token })
    });
    assert!(check(&asked).is_some());
    let reserved = with(clean, |it| it.reserved_for = Some(reservation("b", 5)));
    assert!(check(&reserved).is_some());
}
