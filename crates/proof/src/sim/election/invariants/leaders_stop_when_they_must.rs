//! A leader that must stop in a turn has no authority after this turn. The leader must stop after
//! any of these inputs: a rejection of its newest renewal; a reply to this renewal that shows a
//! pause or a request with the leader's token; a document that shows that the store was rolled
//! back; an unhealthy workload; a signal to step down that arrived after the acquisition was sent
//! (*Outcomes*, *Requests*, *The store went back* and *The workload's health* in
//! `docs/protocol.md`).

use super::{Violation, require, with};

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Turn {
    pub(crate) leads_on: bool,
    pub(crate) rejected: bool,
    pub(crate) paused: bool,
    pub(crate) requested: bool,
    pub(crate) store_went_back: bool,
    /// A step-down was requested after the acquisition was sent and before the candidate led.
    pub(crate) cancelled: bool,
    /// The workload was last reported as unhealthy. While the workload is unhealthy, a new claim
    /// must not lead either.
    pub(crate) unhealthy: bool,
}

impl Turn {
    pub(crate) fn quiet(leads_on: bool) -> Self {
        Self {
            leads_on,
            ..Self::default()
        }
    }
}

pub(crate) fn check(turn: Turn) -> Option<Violation> {
    let told = [
        turn.rejected,
        turn.paused,
        turn.requested,
        turn.cancelled,
        turn.store_went_back,
        turn.unhealthy,
    ];
    let obeys = !turn.leads_on || !told.contains(&true);
    require(obeys, "leaders stop when they must", &turn)
}

#[test]
fn a_leader_without_a_stop_request_may_continue() {
    assert_eq!(check(Turn::quiet(true)), None);
}

#[test]
fn one_that_is_stopped_may_not() {
    for told in [
        with(Turn::quiet(true), |it| it.rejected = true),
        with(Turn::quiet(true), |it| it.paused = true),
        with(Turn::quiet(true), |it| it.requested = true),
        with(Turn::quiet(true), |it| it.cancelled = true),
        with(Turn::quiet(true), |it| it.store_went_back = true),
        with(Turn::quiet(true), |it| it.unhealthy = true),
    ] {
        assert!(check(told).is_some());
        let gone = with(told, |it| it.leads_on = false);
        assert_eq!(check(gone), None);
    }
}
