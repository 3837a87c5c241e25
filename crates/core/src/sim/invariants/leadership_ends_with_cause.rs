//! A leader steps down for a request only if that request named its token, and for any other reason
//! only if its cause has occurred (*Requests*, *Outcomes* and *Losing leadership* in
//! `docs/protocol.md`).

use super::{Violation, violation};
use crate::election::{Reason, Token};

/// A leadership that a turn ends, and the content of that turn's input.
#[derive(Debug, Clone, Copy)]
pub(in crate::sim) struct Ending {
    pub(in crate::sim) token: Token,
    pub(in crate::sim) reason: Option<Reason>,
    /// True if a step-down was requested by a signal.
    pub(in crate::sim) signalled: bool,
    pub(in crate::sim) shut_down: bool,
    /// True if the workload was reported as unable to work.
    pub(in crate::sim) unhealthy: bool,
    /// The token of a workload that was reported as ended.
    pub(in crate::sim) exited: Option<Token>,
    pub(in crate::sim) paused: bool,
    /// The token that the request in the document names.
    pub(in crate::sim) requested: Option<Token>,
    /// True if the input is the answer to a linearizable read.
    pub(in crate::sim) confirmed: bool,
    /// True if the newest renewal did not match.
    pub(in crate::sim) rejected: bool,
    /// True if the authority is over.
    pub(in crate::sim) expired: bool,
}

pub(in crate::sim) fn check(ending: Ending) -> Option<Violation> {
    let Ending {
        token,
        reason,
        signalled,
        shut_down,
        unhealthy,
        exited,
        paused,
        requested,
        confirmed,
        rejected,
        expired,
    } = ending;
    let named = requested == Some(token);
    let caused = match reason {
        Some(Reason::Requested) => signalled || named,
        Some(Reason::Transferred) => named,
        Some(Reason::Paused) => paused,
        Some(Reason::Shutdown) => shut_down,
        Some(Reason::Unhealthy) => unhealthy,
        Some(Reason::Rejected) => rejected,
        Some(Reason::Deadline) => expired,
        // `notices_are_true` checks if the answer was true.
        Some(Reason::StoreRolledBack) => confirmed,
        Some(Reason::WorkloadExit) => exited == Some(token),
        Some(Reason::Acquired | Reason::TookOver | Reason::Renewed | Reason::Duplicate) | None => {
            false
        }
    };
    if caused {
        None
    } else {
        violation("leadership ends with cause", format!("{ending:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending(reason: Reason) -> Ending {
        Ending {
            token: Token::new(7).expect("positive"),
            reason: Some(reason),
            signalled: false,
            shut_down: false,
            unhealthy: false,
            exited: None,
            paused: false,
            requested: None,
            confirmed: false,
            rejected: false,
            expired: false,
        }
    }

    #[test]
    fn an_end_with_its_cause_is_in_order() {
        let named = Token::new(7);
        let signalled = Ending {
            signalled: true,
            ..ending(Reason::Requested)
        };
        assert_eq!(check(signalled), None);
        for reason in [Reason::Requested, Reason::Transferred] {
            let requested = Ending {
                requested: named,
                ..ending(reason)
            };
            assert_eq!(check(requested), None);
        }
        let all = |reason| Ending {
            shut_down: true,
            unhealthy: true,
            exited: named,
            paused: true,
            confirmed: true,
            rejected: true,
            expired: true,
            ..ending(reason)
        };
        for reason in [
            Reason::Shutdown,
            Reason::Unhealthy,
            Reason::WorkloadExit,
            Reason::StoreRolledBack,
            Reason::Paused,
            Reason::Rejected,
            Reason::Deadline,
        ] {
            assert_eq!(check(all(reason)), None);
        }
    }

    #[test]
    fn a_request_that_names_another_token_is_no_cause() {
        for reason in [Reason::Requested, Reason::Transferred] {
            let stale = Ending {
                requested: Token::new(6),
                ..ending(reason)
            };
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
            Reason::StoreRolledBack,
            Reason::Rejected,
            Reason::Deadline,
            Reason::Renewed,
        ] {
            assert!(check(ending(reason)).is_some(), "{reason:?}");
        }
    }
}
