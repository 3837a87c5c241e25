//! An acquisition or a takeover clears what was meant for the previous claim: the request and the
//! reservation (*Requests* in `docs/protocol.md`).

use std::time::Duration;

use super::{Violation, require};
use crate::election::{Identity, Lease, Request, RequestKind, Reservation, Revision, Token};

/// Checks the state that a majority has after a claim was stored.
pub(crate) fn check(lease: &Lease) -> Option<Violation> {
    require(
        lease.request.is_none() && lease.reserved_for.is_none(),
        "acquisitions begin clean",
        &lease,
    )
}

#[test]
fn what_was_meant_for_another_claim_is_found() {
    let clean = Lease {
        token: Token::ZERO,
        revision: Revision::from_bytes([1; 16]),
        holder: None,
        paused: false,
        request: None,
        reserved_for: None,
    };
    assert_eq!(check(&clean), None);
    let asked = Lease {
        request: Some(Request {
            kind: RequestKind::StepDown,
            token: Token::ZERO,
        }),
        ..clean.clone()
    };
    assert!(check(&asked).is_some());
    let reserved = Lease {
        reserved_for: Some(Reservation {
            identity: Identity::new("b").expect("legal"),
            duration: Duration::from_secs(5),
        }),
        ..clean
    };
    assert!(check(&reserved).is_some());
}
