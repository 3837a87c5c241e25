//! A leader steps down on request only if the request named its token. A leader reports any other
//! reason for a step-down only if the reason is true (*Requests*, *Outcomes* and *Losing
//! leadership* in `docs/protocol.md`).

use super::{Violation, require, with};
use crate::election::{Reason, Token};

/// A leadership that ends in a turn, and the contents of this turn's input.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ending {
    pub(crate) token: Token,
    pub(crate) reason: Option<Reason>,
    pub(crate) signalled: bool,
    pub(crate) shut_down: bool,
    pub(crate) unhealthy: bool,
    pub(crate) exited: Option<Token>,
    pub(crate) stuck: Option<Token>,
    pub(crate) paused: bool,
    /// A handover without a request. `preference_is_bounded` checks such handovers.
    pub(crate) prefers: bool,
    pub(crate) requested: Option<Token>,
    pub(crate) confirmed: bool,
    pub(crate) rejected: bool,
    pub(crate) expired: bool,
}

pub(crate) fn check(ending: Ending) -> Option<Violation> {
    let named = ending.requested == Some(ending.token);
    let caused = match ending.reason {
        Some(Reason::Requested) => ending.signalled || named,
        Some(Reason::Transferred) => named || ending.prefers,
        Some(Reason::Paused) => ending.paused,
        Some(Reason::Shutdown) => ending.shut_down,
        Some(Reason::Unhealthy) => ending.unhealthy,
        Some(Reason::Rejected) => ending.rejected,
        Some(Reason::Deadline) => ending.expired,
        // `notices_are_true` checks that a majority had the state in this answer.
        Some(Reason::StoreRolledBack) => ending.confirmed,
        Some(Reason::WorkloadStuck) => ending.stuck == Some(ending.token),
        Some(Reason::WorkloadExit) => ending.exited == Some(ending.token),
        Some(
            Reason::Acquired
            | Reason::TookOver
            | Reason::Renewed
            | Reason::Duplicate
            | Reason::Died,
        )
        | None => false,
    };
    require(caused, "leadership ends with cause", &ending)
}

fn ending(reason: Reason) -> Ending {
    Ending {
        token: Token::new(7).expect("positive"),
        reason: Some(reason),
        ..Ending::default()
    }
}

#[test]
fn an_end_with_its_cause_is_in_order() {
    let named = Token::new(7);
    let signalled = with(ending(Reason::Requested), |it| it.signalled = true);
    assert_eq!(check(signalled), None);
    for reason in [Reason::Requested, Reason::Transferred] {
        let requested = with(ending(reason), |it| it.requested = named);
        assert_eq!(check(requested), None);
    }
    let preferred = with(ending(Reason::Transferred), |it| it.prefers = true);
    assert_eq!(check(preferred), None);
    type Cause = fn(&mut Ending);
    let causes: [(Reason, Cause); 8] = [
        (Reason::Shutdown, |it| it.shut_down = true),
        (Reason::Unhealthy, |it| it.unhealthy = true),
        (Reason::WorkloadStuck, |it| it.stuck = Token::new(7)),
        (Reason::WorkloadExit, |it| it.exited = Token::new(7)),
        (Reason::StoreRolledBack, |it| it.confirmed = true),
        (Reason::Paused, |it| it.paused = true),
        (Reason::Rejected, |it| it.rejected = true),
        (Reason::Deadline, |it| it.expired = true),
    ];
    for (reason, cause) in causes {
        assert_eq!(check(with(ending(reason), cause)), None, "{reason:?}");
    }
}

#[test]
fn a_request_for_another_token_is_not_a_cause() {
    for reason in [Reason::Requested, Reason::Transferred] {
        let stale = with(ending(reason), |it| it.requested = Token::new(6));
        assert!(check(stale).is_some());
    }
}

#[test]
fn an_end_without_its_cause_is_found() {
    for reason in [
        Reason::Requested,
        Reason::Transferred,
        Reason::Paused,
        Reason::Shutdown,
        Reason::Unhealthy,
        Reason::WorkloadStuck,
        Reason::StoreRolledBack,
        Reason::Rejected,
        Reason::Deadline,
        Reason::Renewed,
    ] {
        assert!(check(ending(reason)).is_some(), "{reason:?}");
    }
}
