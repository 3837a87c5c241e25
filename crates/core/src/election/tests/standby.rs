//! The standby: which follower registers, when others wait for it, and when it withdraws.

use super::harness::*;
use crate::election::*;

/// The head start of the standby, in milliseconds.
const HEAD_START: u64 = 50;
/// The longest random delay after the head start, in milliseconds.
const SPREAD: u64 = 40;

fn standing_by(name: &str, now: BootTime, stored: &mut Stored) -> Node {
    let candidate = Candidate {
        stands_by: true,
        ..candidate(name)
    };
    let mut node = Node::begin(candidate, now);
    node.serve(now, stored);
    node.open_stream(now, stored);
    assert_eq!(node.role(), Role::Follower, "{:?}", node.sent);
    node
}

fn standby(stored: &Stored) -> Option<&str> {
    let standby = stored.lease().standby.as_ref();
    standby.map(|standby| standby.identity.as_str())
}

/// Returns a leader `a` with its standby `b`, another follower `c`, and the store.
fn with_standby() -> (Node, Node, Node, Stored) {
    let (mut a, mut stored) = leader("a", at(0));
    let mut b = standing_by("b", at(0), &mut stored);
    b.run(at(2), &mut stored);
    assert_eq!(standby(&stored), Some("b"));
    let c = standing_by("c", at(2), &mut stored);
    a.event(at(2), &stored);
    b.event(at(2), &stored);
    (a, b, c, stored)
}

#[test]
fn a_follower_registers_once_and_renews_nothing() {
    let (_, mut b, mut c, mut stored) = with_standby();
    let revision = stored.lease().revision;
    for second in 3..20 {
        stored.rewrite();
        b.observe(at(second), &mut stored);
        c.observe(at(second), &mut stored);
    }
    assert_ne!(stored.lease().revision, revision);
    assert_eq!((b.count("register"), c.count("register")), (1, 0));
}

#[test]
fn a_registration_changes_neither_the_revision_nor_the_wait_for_it() {
    let (_, mut stored) = leader("a", at(0));
    let revision = stored.lease().revision;
    let mut b = standing_by("b", at(0), &mut stored);
    b.run(at(2), &mut stored);
    b.event(at(2), &stored);
    assert_eq!(stored.lease().revision, revision);
    // The standby itself takes over one lease duration after it first saw the revision.
    b.sends_nth(1, "take_over", at(24), &mut stored);
    assert_eq!(standby(&stored), None, "cleared by each acquisition");
}

#[test]
fn a_release_gives_the_standby_its_head_start() {
    let (mut a, mut b, mut c, mut stored) = with_standby();
    a.release(at(3), Input::Shutdown, &mut stored);
    b.event(at(3), &stored);
    c.event(at(3), &stored);
    assert_eq!((b.waiting(), c.waiting()), (vec!["acquire"], vec![]));
    let due = c.election.next_wakeup().expect("c waits for an instant");
    assert!(due >= at(3) + millis(HEAD_START), "{due:?}");
    assert!(due <= at(3) + millis(HEAD_START + SPREAD), "{due:?}");
    b.serve(at(3), &mut stored);
    assert!(b.leads(at(3)));
}

#[test]
fn a_standby_does_not_spread_out_for_races_that_it_lost_before() {
    let (mut a, mut b, _, mut stored) = with_standby();
    b.election.contender.waits().jitter_max = millis(40);
    a.release(at(3), Input::Shutdown, &mut stored);
    b.event(at(3), &stored);
    assert_eq!(b.waiting(), ["acquire"]);
}

#[test]
fn a_standby_that_has_gone_costs_the_others_one_head_start() {
    let (mut a, _, mut c, mut stored) = with_standby();
    a.release(at(3), Input::Shutdown, &mut stored);
    c.event(at(3), &stored);
    c.run(at(3) + millis(HEAD_START + SPREAD), &mut stored);
    assert!(c.leads(at(4)));
    assert_eq!(standby(&stored), None);
}

#[test]
fn others_leave_an_expired_lease_to_the_standby_first() {
    let (_, _, mut c, mut stored) = with_standby();
    // c first saw the revision at 2 s.
    c.run(at(26) + millis(HEAD_START - 1), &mut stored);
    assert_eq!(c.count("take_over"), 0);
    c.run(at(26) + millis(HEAD_START + SPREAD), &mut stored);
    assert!(c.leads(at(27)));
}

#[test]
fn a_transfer_goes_before_the_standby() {
    let (mut a, mut b, _, mut stored) = with_standby();
    let reservation = Reservation {
        identity: identity("c"),
        duration: seconds(5),
    };
    stored.lease_mut().request = Some(Request {
        kind: RequestKind::Transfer(reservation.clone()),
        token: token(1),
    });
    a.observe(at(3), &mut stored);
    a.demoted(at(3), &mut stored);
    assert_eq!(stored.lease().reserved_for, Some(reservation));
    b.event(at(3), &stored);
    assert_eq!(b.waiting(), Vec::<&str>::new());
}

#[test]
fn a_standby_that_shuts_down_withdraws_and_waits_for_the_answer_briefly() {
    let (_, mut b, _, mut stored) = with_standby();
    let mut cut_off = b.clone();
    b.input(at(3), Input::Shutdown);
    assert_eq!((b.waiting(), b.exited), (vec!["withdraw"], false));
    b.serve(at(3), &mut stored);
    assert!(b.exited);
    assert_eq!(standby(&stored), None);
    cut_off.input(at(3), Input::Shutdown);
    cut_off.tick(at(3) + millis(499));
    assert!(!cut_off.exited);
    cut_off.tick(at(3) + millis(500));
    assert!(cut_off.exited);
}

#[test]
fn a_registration_in_flight_is_awaited_and_withdrawn() {
    let (_, mut stored) = leader("a", at(0));
    let mut b = standing_by("b", at(0), &mut stored);
    while b.waiting() != ["register"] {
        b.wake();
    }
    b.input(at(2), Input::Shutdown);
    assert!(!b.exited);
    b.answer(at(2), &mut stored);
    assert_eq!(
        (standby(&stored), b.waiting()),
        (Some("b"), vec!["withdraw"])
    );
    b.answer(at(2), &mut stored);
    assert_eq!((standby(&stored), b.exited), (None, true));
}

#[test]
fn a_follower_that_is_not_the_standby_exits_at_once() {
    let (_, _, mut c, _) = with_standby();
    c.input(at(3), Input::Shutdown);
    assert!(c.exited);
}

#[test]
fn an_unhealthy_follower_withdraws_once_and_registers_again_when_it_is_healthy() {
    let (_, mut b, _, mut stored) = with_standby();
    b.input(at(3), Input::Health { healthy: false });
    b.run(at(5), &mut stored);
    assert_eq!((b.count("withdraw"), standby(&stored)), (1, None));
    b.event(at(5), &stored);
    b.input(at(5), Input::Health { healthy: true });
    b.run(at(8), &mut stored);
    assert_eq!(standby(&stored), Some("b"));
}

#[test]
fn a_pause_gives_no_head_start() {
    let (mut a, _, _, mut stored) = with_standby();
    stored.lease_mut().paused = true;
    a.observe(at(3), &mut stored);
    a.demoted(at(3), &mut stored);
    assert_eq!(
        (&stored.lease().holder, &stored.lease().reserved_for),
        (&None, &None)
    );
}

#[test]
fn a_rejected_registration_is_not_repeated_for_the_same_holder() {
    let (_, mut stored) = leader("a", at(0));
    let mut b = standing_by("b", at(0), &mut stored);
    while b.waiting() != ["register"] {
        b.wake();
    }
    // The document has a field that this version cannot read.
    b.answer_with(at(2), Outcome::Rejected);
    for second in (3..100).step_by(3) {
        stored.rewrite();
        b.observe(at(second), &mut stored);
        b.run(at(second + 2), &mut stored);
    }
    assert_eq!(b.count("register"), 1);
}

#[test]
fn a_failed_registration_is_repeated_with_a_growing_delay() {
    let (_, mut stored) = leader("a", at(0));
    let mut b = standing_by("b", at(0), &mut stored);
    for (sent, failed_at, outcome, pause) in [
        (1, at(2), Outcome::Failed, 800),
        (2, at(6), Outcome::Unknown, 1600),
    ] {
        while b.waiting() != ["register"] {
            b.wake();
        }
        b.answer_with(failed_at, outcome);
        b.run(failed_at + millis(pause - 1), &mut stored);
        assert_eq!(b.count("register"), sent);
    }
    b.run(at(6) + millis(2400 + 2000), &mut stored);
    assert_eq!((b.count("register"), standby(&stored)), (3, Some("b")));
}

#[test]
fn a_paused_lease_gets_no_standby() {
    let (_, mut stored) = leader("a", at(0));
    let mut b = standing_by("b", at(0), &mut stored);
    stored.lease_mut().paused = true;
    b.event(at(0), &stored);
    b.run(at(10), &mut stored);
    assert_eq!(b.count("register"), 0);
}
