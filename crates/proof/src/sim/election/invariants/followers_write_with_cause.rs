//! I8: a follower writes only in one of these cases: the lease is free, the follower saw the lease
//! expire, the follower's own ended claim holds the lease, or the holder has provably exited. A
//! follower does not write while the lease is paused or reserved for another candidate, or while
//! the document is foreign. A follower also does not write during its cooldown or while its
//! workload is unhealthy.

use std::time::Duration;

use super::{Violation, reservation, violation, with};
use crate::election::{
    BootTime, Claim, Declared, Holder, Identity, Lease, RESERVATION_MAX, Reservation, Revision,
    Session, Token, WallMillis,
};
use crate::reference::election::free;

/// An acquisition or a takeover, and the document that its sender saw.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Write<'a> {
    pub(crate) now: BootTime,
    pub(crate) me: &'a Identity,
    /// The last document that the sender saw with the expected revision, and the time when the
    /// sender first saw this revision.
    pub(crate) shown: Option<(&'a Lease, BootTime)>,
    /// The holder's claim is from this process, which does not lead now.
    pub(crate) own: bool,
    pub(crate) dead: bool,
    pub(crate) foreign: bool,
    /// The sender is in a cooldown after a request to step down or after its workload exited.
    pub(crate) stays_out: bool,
    pub(crate) unhealthy: bool,
}

pub(crate) fn check(write: Write<'_>) -> Option<Violation> {
    let obstacle = obstacle(&write)?;
    violation("I8", format!("{obstacle}: {write:?}"))
}

/// Returns the reason why the write is not permitted, if there is one.
fn obstacle(write: &Write<'_>) -> Option<&'static str> {
    let Some((lease, first)) = write.shown else {
        return Some("expects a revision that it was never shown");
    };
    let waited = write.now.since(first);
    let reserved =
        |to: &Reservation| to.identity != *write.me && waited < to.duration.min(RESERVATION_MAX);
    let reserved = lease.holder.is_none() && lease.reserved_for.as_ref().is_some_and(reserved);
    let unexpired = |holder: &Holder| waited < holder.lease_duration.duration();
    let held = lease.holder.as_ref().is_some_and(unexpired) && !write.own && !write.dead;
    let all = [
        (lease.paused, "the lease is paused"),
        (write.foreign, "the document is foreign"),
        (write.stays_out, "the candidate is in a cooldown"),
        (write.unhealthy, "the candidate's workload is unhealthy"),
        (reserved, "the lease is reserved for another candidate"),
        (held, "the holder has not expired"),
    ];
    all.into_iter()
        .find_map(|(holds, why)| holds.then_some(why))
}

fn lease(held: bool) -> Lease {
    let holder = Holder {
        identity: Identity::new("a").expect("legal"),
        session: Session::from_bytes([1; 16]),
        claim: Claim::from_bytes([1; 16]),
        acquired_at: WallMillis(0),
        lease_duration: Declared { millis: 24_000 },
        renew_interval: None,
        token: None,
    };
    let free = free(Revision::from_bytes([1; 16]), Token::ZERO);
    with(free, |it| it.holder = held.then_some(holder))
}

fn write<'a>(lease: &'a Lease, me: &'a Identity, seconds: u64) -> Write<'a> {
    Write {
        now: BootTime::default() + Duration::from_secs(seconds),
        me,
        shown: Some((lease, BootTime::default())),
        own: false,
        dead: false,
        foreign: false,
        stays_out: false,
        unhealthy: false,
    }
}

#[test]
fn a_write_with_a_cause_is_in_order() {
    let me = Identity::new("b").expect("legal");
    let (free, held) = (lease(false), lease(true));
    assert_eq!(check(write(&free, &me, 0)), None);
    assert_eq!(check(write(&held, &me, 24)), None);
    for (own, dead) in [(true, false), (false, true)] {
        let write = write(&held, &me, 0);
        assert_eq!(check(Write { own, dead, ..write }), None);
    }
}

#[test]
fn a_write_without_one_is_found() {
    let me = Identity::new("b").expect("legal");
    let (free, held) = (lease(false), lease(true));
    assert!(check(write(&held, &me, 23)).is_some());
    let paused = with(lease(false), |it| it.paused = true);
    assert!(check(write(&paused, &me, 0)).is_some());
    let reserved = with(lease(false), |it| {
        it.reserved_for = Some(reservation("c", 5))
    });
    assert!(check(write(&reserved, &me, 4)).is_some());
    assert_eq!(check(write(&reserved, &me, 5)), None);
    let write = write(&free, &me, 0);
    for wrong in [
        with(write, |it| it.shown = None),
        with(write, |it| it.foreign = true),
        with(write, |it| it.stays_out = true),
        with(write, |it| it.unhealthy = true),
    ] {
        assert!(check(wrong).is_some());
    }
}
