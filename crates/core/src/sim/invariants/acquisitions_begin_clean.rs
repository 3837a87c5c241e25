//! An acquisition or a takeover clears what was meant for the previous claim: the request and the
//! reservation (*Requests* in `docs/protocol.md`).

use super::{Violation, violation};
use crate::election::Lease;

/// Checks the state that a majority has after a claim was stored.
pub(in crate::sim) fn check(lease: &Lease) -> Option<Violation> {
    if lease.request.is_none() && lease.reserved_for.is_none() {
        None
    } else {
        violation("acquisitions begin clean", format!("{lease:?}"))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::election::{Identity, Request, RequestKind, Reservation, Revision, Token};

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
}
