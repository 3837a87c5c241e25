//! A leader that must stop has no authority after that turn. The causes are a rejection of its
//! newest renewal, a reply to it that shows a pause or a request which names its token, a document
//! that is older than before, and an unhealthy workload (*Outcomes*, *Requests*, *The store went
//! back* and *The workload's health* in `docs/protocol.md`).

use super::{Violation, violation};

/// A turn of a leader.
#[derive(Debug, Clone, Copy)]
pub(in crate::sim) struct Turn {
    /// True if it leads with the same claim as before the turn.
    pub(in crate::sim) leads_on: bool,
    pub(in crate::sim) rejected: bool,
    pub(in crate::sim) paused: bool,
    pub(in crate::sim) requested: bool,
    pub(in crate::sim) store_went_back: bool,
    /// True if its workload was last reported unhealthy. No other claim leads then either.
    pub(in crate::sim) unhealthy: bool,
}

impl Turn {
    /// Returns a turn in which nothing makes the leader stop.
    pub(in crate::sim) const fn quiet(leads_on: bool) -> Self {
        Self {
            leads_on,
            rejected: false,
            paused: false,
            requested: false,
            store_went_back: false,
            unhealthy: false,
        }
    }
}

pub(in crate::sim) fn check(turn: Turn) -> Option<Violation> {
    let Turn {
        leads_on,
        rejected,
        paused,
        requested,
        store_went_back,
        unhealthy,
    } = turn;
    if leads_on && (rejected || paused || requested || store_went_back || unhealthy) {
        violation("leaders obey", format!("{turn:?}"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Turn = Turn::quiet(true);

    #[test]
    fn a_leader_that_nobody_stops_may_go_on() {
        assert_eq!(check(QUIET), None);
    }

    #[test]
    fn one_that_is_stopped_may_not() {
        for told in [
            Turn {
                rejected: true,
                ..QUIET
            },
            Turn {
                paused: true,
                ..QUIET
            },
            Turn {
                requested: true,
                ..QUIET
            },
            Turn {
                store_went_back: true,
                ..QUIET
            },
            Turn {
                unhealthy: true,
                ..QUIET
            },
        ] {
            assert!(check(told).is_some());
            let gone = Turn {
                leads_on: false,
                ..told
            };
            assert_eq!(check(gone), None);
        }
    }
}
