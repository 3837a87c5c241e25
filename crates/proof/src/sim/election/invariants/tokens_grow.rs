//! I3: each acquisition has a higher token than all earlier acquisitions. Tokens repeat only if
//! data was lost and the acquirer could not know of the loss.

use super::{Violation, require, with};
use crate::election::Token;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Acquired {
    pub(crate) token: Token,
    pub(crate) before: Token,
    /// The highest token that the acquirer has seen or that its directory contains.
    pub(crate) known: Token,
    /// The highest token of any acquisition, or `None` once the document was damaged.
    pub(crate) highest: Option<Token>,
}

pub(crate) fn check(acquired: Acquired) -> Option<Violation> {
    let others = [
        Some(acquired.before),
        Some(acquired.known),
        acquired.highest,
    ];
    require(
        Some(acquired.token) > others.into_iter().max().flatten(),
        "I3",
        &acquired,
    )
}

fn acquired(numbers: [i64; 4]) -> Acquired {
    let [token, before, known, highest] = numbers.map(|n| Token::new(n).expect("positive"));
    Acquired {
        token,
        before,
        known,
        highest: Some(highest),
    }
}

#[test]
fn a_higher_token_is_accepted() {
    assert_eq!(check(acquired([8, 7, 7, 7])), None);
    let damaged = with(acquired([2, 1, 1, 9]), |it| it.highest = None);
    assert_eq!(check(damaged), None);
}

#[test]
fn a_token_that_was_there_before_is_not() {
    for numbers in [[7, 7, 6, 6], [7, 6, 7, 6], [7, 6, 6, 7]] {
        assert!(check(acquired(numbers)).is_some(), "{numbers:?}");
    }
}
