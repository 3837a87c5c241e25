//! At most one child has a given token. A claim starts its child at most once, and no two claims
//! with a child have the same token (I3).

use super::{Violation, violation};
use crate::election::{Claim, Token};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Started {
    pub(crate) claim: Claim,
    pub(crate) token: Token,
}

pub(crate) fn check(before: &[Started], started: Started) -> Option<Violation> {
    let same =
        |earlier: &&Started| earlier.claim == started.claim || earlier.token == started.token;
    let earlier = before.iter().find(same)?;
    let evidence = format!("{started:?} after {earlier:?}");
    violation("one child a token", evidence)
}

fn started(claim: u8, token: i64) -> Started {
    Started {
        claim: Claim::from_bytes([claim; 16]),
        token: Token::new(token).expect("positive"),
    }
}

#[test]
fn each_claim_has_a_child_and_a_token_of_its_own() {
    assert_eq!(check(&[], started(1, 1)), None);
    assert_eq!(check(&[started(1, 1)], started(2, 2)), None);
}

#[test]
fn a_second_child_of_a_claim_or_of_a_token_is_found() {
    for again in [started(1, 1), started(2, 1), started(1, 2)] {
        assert!(check(&[started(1, 1)], again).is_some());
    }
}
