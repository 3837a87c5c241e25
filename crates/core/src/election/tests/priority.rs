//! Priorities: which follower is the standby and acquires first, and when a leader hands over.

use super::harness::*;
use crate::election::*;

const HEAD_START: u64 = 50;
const SPREAD: u64 = 40;
/// The minimum interval between handoffs, in seconds. `ANSWER` is the time that a standby has to
/// register again.
const INTERVAL: u64 = 300;
const ANSWER: u64 = 8;

fn with_priority(name: &str, priority: u32) -> Candidate {
    Candidate {
        stands_by: true,
        priority,
        tunables: Tunables {
            prefer_interval: Some(seconds(INTERVAL)),
            ..tunables()
        },
        ..candidate(name)
    }
}

fn start(candidate: Candidate, now: BootTime, stored: &mut Stored) -> Node {
    let mut node = Node::begin(candidate, now);
    node.serve(now, stored);
    node.open_stream(now, stored);
    node
}

fn ranked(name: &str, priority: u32, now: BootTime, stored: &mut Stored) -> Node {
    start(with_priority(name, priority), now, stored)
}

fn standby(stored: &Stored) -> Option<(&str, u32)> {
    let standby = stored.lease().standby.as_ref();
    standby.map(|standby| (standby.identity.as_str(), standby.priority))
}

/// Returns a leader `a` and its standby `b`, with these priorities, and the store at 3 s.
fn leader_and_standby(of_leader: u32, of_standby: u32) -> (Node, Node, Stored) {
    let mut stored = Stored::default();
    let mut a = ranked("a", of_leader, at(0), &mut stored);
    let mut b = ranked("b", of_standby, at(0), &mut stored);
    b.run(at(3), &mut stored);
    a.observe(at(3), &mut stored);
    assert_eq!(standby(&stored), Some(("b", of_standby)));
    (a, b, stored)
}

#[test]
fn a_higher_follower_replaces_the_standby_and_an_equal_one_does_not() {
    let (_, mut b, mut stored) = leader_and_standby(0, 1);
    let mut equal = ranked("c", 1, at(3), &mut stored);
    equal.run(at(9), &mut stored);
    assert_eq!(
        (equal.count("register"), standby(&stored)),
        (0, Some(("b", 1)))
    );
    let mut higher = ranked("d", 2, at(3), &mut stored);
    let revision = stored.lease().revision;
    higher.run(at(9), &mut stored);
    assert_eq!(standby(&stored), Some(("d", 2)));
    assert_eq!(stored.lease().revision, revision);
    // The replaced standby does not register again.
    b.observe(at(9), &mut stored);
    b.run(at(30), &mut stored);
    assert_eq!((b.count("register"), standby(&stored)), (1, Some(("d", 2))));
}

#[test]
fn a_registration_replaces_only_the_standby_that_it_saw() {
    let (_, _, mut stored) = leader_and_standby(0, 0);
    let mut c = ranked("c", 1, at(3), &mut stored);
    let mut d = ranked("d", 2, at(3), &mut stored);
    for node in [&mut c, &mut d] {
        while node.waiting() != ["register"] {
            node.wake();
        }
    }
    d.answer(at(6), &mut stored);
    c.answer(at(6), &mut stored);
    assert_eq!(standby(&stored), Some(("d", 2)));
}

#[test]
fn the_standby_of_an_earlier_version_has_priority_0() {
    let (_, _, mut stored) = leader_and_standby(0, 0);
    let mut c = ranked("c", 0, at(3), &mut stored);
    c.run(at(9), &mut stored);
    assert_eq!(c.count("register"), 0);
}

#[test]
fn a_lower_candidate_leaves_a_longer_head_start_after_a_release() {
    for (own, steps) in [(0, 3), (1, 3), (2, 2), (3, 1), (4, 1)] {
        let (mut a, _, mut stored) = leader_and_standby(0, 3);
        let mut c = start(
            Candidate {
                stands_by: false,
                ..with_priority("c", own)
            },
            at(3),
            &mut stored,
        );
        a.release(at(4), Input::Shutdown, &mut stored);
        c.event(at(4), &stored);
        let due = c.election.next_wakeup().expect("c waits for an instant");
        assert!(due >= at(4) + millis(steps * HEAD_START), "{own}: {due:?}");
        let latest = at(4) + millis(steps * HEAD_START + SPREAD);
        assert!(due <= latest, "{own}: {due:?}");
        c.run(latest, &mut stored);
        assert!(
            c.leads(at(5)),
            "a standby that has exited delays the others once"
        );
        assert_eq!(standby(&stored), None);
    }
}

#[test]
fn a_lower_candidate_leaves_a_longer_head_start_after_an_expiry() {
    let (_, _, mut stored) = leader_and_standby(0, 7);
    let mut c = ranked("c", 0, at(3), &mut stored);
    c.run(at(27) + millis(3 * HEAD_START - 1), &mut stored);
    assert_eq!(c.count("take_over"), 0);
    c.run(at(27) + millis(3 * HEAD_START + SPREAD), &mut stored);
    assert!(c.leads(at(28)));
}

#[test]
fn a_transfer_is_not_delayed_by_priorities() {
    let (mut a, _, mut stored) = leader_and_standby(0, 7);
    let mut c = ranked("c", 0, at(3), &mut stored);
    stored.lease_mut().request = Some(Request {
        kind: RequestKind::Transfer(Reservation {
            identity: identity("c"),
            duration: seconds(5),
        }),
        token: token(1),
    });
    a.observe(at(4), &mut stored);
    a.demoted(at(4), &mut stored);
    c.event(at(4), &stored);
    assert_eq!(c.waiting(), ["acquire"]);
}

#[test]
fn a_leader_without_a_preference_is_never_preempted() {
    let mut stored = Stored::default();
    let candidate = Candidate {
        tunables: tunables(),
        ..with_priority("a", 0)
    };
    let mut a = start(candidate, at(0), &mut stored);
    let mut b = ranked("b", 9, at(0), &mut stored);
    b.run(at(3), &mut stored);
    a.observe(at(3), &mut stored);
    a.run(at(3_000), &mut stored);
    assert_eq!((a.count("withdraw"), a.leads(at(3_000))), (0, true));
}

#[test]
fn a_leader_hands_over_after_its_interval_to_a_standby_that_registers_again() {
    let (mut a, mut b, mut stored) = leader_and_standby(1, 2);
    a.sends_nth(1, "withdraw", at(INTERVAL), &mut stored);
    assert_eq!((standby(&stored), a.leads(at(INTERVAL))), (None, true));
    b.observe(at(INTERVAL), &mut stored);
    b.run(at(INTERVAL + 3), &mut stored);
    a.event(at(INTERVAL + 3), &stored);
    a.run(at(INTERVAL + ANSWER) - millis(1), &mut stored);
    assert_eq!(a.demotions_asked, 0);
    a.run(at(INTERVAL + ANSWER), &mut stored);
    let (identity, priority) = (identity("b"), 2);
    assert_eq!(
        a.notices,
        [Notice::GivingWay {
            identity: identity.clone(),
            priority
        }]
    );
    a.assert_role(Role::Stopping, Reason::Transferred);
    a.demoted(at(INTERVAL + ANSWER), &mut stored);
    let reserved = Some(Reservation {
        identity,
        duration: RESERVATION_DEFAULT,
    });
    assert_eq!(stored.lease().reserved_for, reserved);
    b.observe(at(INTERVAL + ANSWER), &mut stored);
    assert!(b.leads(at(INTERVAL + ANSWER)));
    assert_eq!(b.token(), token(2));
}

#[test]
fn a_leader_does_not_hand_over_to_a_standby_that_has_exited_and_asks_once_in_its_interval() {
    let (mut a, _, mut stored) = leader_and_standby(0, 2);
    a.run(at(INTERVAL + ANSWER), &mut stored);
    assert_eq!(
        (a.count("withdraw"), a.leads(at(INTERVAL + ANSWER))),
        (1, true)
    );
    // Another standby registers. The leader withdraws this registration one interval later.
    let mut c = ranked("c", 3, at(INTERVAL + ANSWER), &mut stored);
    c.run(at(INTERVAL + ANSWER + 3), &mut stored);
    a.event(at(INTERVAL + ANSWER + 3), &stored);
    a.sends_nth(2, "withdraw", at(2 * INTERVAL + ANSWER), &mut stored);
    assert_eq!(a.notices, []);
}

#[test]
fn a_leader_waits_until_the_standby_has_been_registered_for_a_lease_duration() {
    let mut stored = Stored::default();
    let mut a = ranked("a", 0, at(0), &mut stored);
    a.run(at(INTERVAL - 1), &mut stored);
    let mut b = ranked("b", 1, at(INTERVAL - 1), &mut stored);
    b.run(at(INTERVAL + 2), &mut stored);
    a.event(at(INTERVAL + 2), &stored);
    a.sends_nth(1, "withdraw", at(INTERVAL + 2 + 24), &mut stored);
}

#[test]
fn an_answer_that_only_an_old_document_shows_is_none() {
    let (mut a, mut b, mut stored) = leader_and_standby(0, 1);
    a.run(at(INTERVAL) - millis(1), &mut stored);
    a.tick(at(INTERVAL));
    a.serve(at(INTERVAL), &mut stored);
    b.observe(at(INTERVAL), &mut stored);
    b.run(at(INTERVAL + 3), &mut stored);
    // An event shows that b registered again. No renewal has been acknowledged since.
    a.event(at(INTERVAL + 3), &stored);
    a.run_cut_off(at(INTERVAL + ANSWER), &Outcome::Unknown);
    assert_eq!((a.notices.len(), a.leads(at(INTERVAL + ANSWER))), (0, true));
}

#[test]
fn an_equal_or_lower_standby_and_a_namesake_get_no_lease() {
    for (name, own, other) in [("b", 2, 2), ("b", 2, 1), ("a", 0, 9)] {
        let mut stored = Stored::default();
        let mut a = ranked("a", own, at(0), &mut stored);
        stored.lease_mut().standby = Some(Standby {
            session: Session::from_bytes([7; 16]),
            identity: identity(name),
            priority: other,
        });
        a.observe(at(3), &mut stored);
        a.run(at(2 * INTERVAL), &mut stored);
        assert_eq!(a.count("withdraw"), 0, "{name} {own} {other}");
    }
}

#[test]
fn a_leader_that_gave_way_contends_again_after_the_reservation_and_keeps_the_interval() {
    let (mut a, mut b, mut stored) = leader_and_standby(0, 1);
    a.run(at(INTERVAL), &mut stored);
    b.observe(at(INTERVAL), &mut stored);
    b.run(at(INTERVAL + 3), &mut stored);
    a.event(at(INTERVAL + 3), &stored);
    let gave_way = at(INTERVAL + ANSWER);
    a.run(gave_way, &mut stored);
    a.demoted(gave_way, &mut stored);
    // b does not acquire the reserved lease.
    a.run(gave_way + seconds(5) + millis(SPREAD), &mut stored);
    assert!(a.leads(gave_way + seconds(6)));
    let mut c = ranked("c", 1, gave_way + seconds(6), &mut stored);
    c.run(gave_way + seconds(9), &mut stored);
    a.event(gave_way + seconds(9), &stored);
    a.run(gave_way + seconds(INTERVAL + 4), &mut stored);
    assert_eq!(
        a.count("withdraw"),
        1,
        "a new leadership begins a new interval"
    );
    a.run(gave_way + seconds(INTERVAL + 6), &mut stored);
    assert_eq!(a.count("withdraw"), 2);
}

#[test]
fn a_reload_turns_the_preference_off_and_on() {
    let (mut a, _, mut stored) = leader_and_standby(0, 1);
    a.input(at(4), Input::Reconfigure(tunables()));
    a.run(at(INTERVAL + 60), &mut stored);
    assert_eq!(a.count("withdraw"), 0);
    let tunables = with_priority("a", 0).tunables;
    a.input(at(INTERVAL + 60), Input::Reconfigure(tunables));
    a.sends_nth(1, "withdraw", at(2 * INTERVAL + 60), &mut stored);
}

#[test]
fn a_handover_to_a_standby_is_not_undone_by_a_lost_release() {
    for lost in [Outcome::Unknown, Outcome::Failed] {
        let (mut a, mut b, mut stored) = leader_and_standby(0, 1);
        a.run(at(INTERVAL), &mut stored);
        b.observe(at(INTERVAL), &mut stored);
        b.run(at(INTERVAL + 3), &mut stored);
        a.event(at(INTERVAL + 3), &stored);
        let gave_way = at(INTERVAL + ANSWER);
        a.run(gave_way, &mut stored);
        a.input(gave_way, FILES_DEMOTED);
        assert_eq!(a.answer_with(gave_way, lost).as_str(), "release");
        a.run(gave_way + seconds(3), &mut stored);
        assert_eq!((a.count("take_over"), a.count("release")), (0, 2));
        b.observe(gave_way + seconds(3), &mut stored);
        assert!(b.leads(gave_way + seconds(3)));
    }
}

#[test]
fn after_a_reload_a_leader_waits_for_renewals_of_its_claim() {
    let slow = with_timings(TimingSettings {
        lease_duration: seconds(100),
        renew_deadline: seconds(75),
        renew_interval: seconds(20),
        ..TimingSettings::default()
    });
    let slow = Tunables {
        prefer_interval: Some(seconds(INTERVAL)),
        ..slow
    };
    let mut stored = Stored::default();
    let mut a = start(
        Candidate {
            tunables: slow,
            ..with_priority("a", 1)
        },
        at(0),
        &mut stored,
    );
    let mut b = ranked("b", 2, at(0), &mut stored);
    b.run(at(3), &mut stored);
    a.observe(at(3), &mut stored);
    a.input(at(4), Input::Reconfigure(with_priority("a", 1).tunables));
    while a.count("withdraw") == 0 {
        let now = a.wake();
        a.serve(now, &mut stored);
    }
    let withdrawn = a.now();
    b.observe(withdrawn, &mut stored);
    b.run(withdrawn + seconds(3), &mut stored);
    a.event(withdrawn + seconds(3), &stored);
    a.run(withdrawn + seconds(40), &mut stored);
    a.assert_role(Role::Stopping, Reason::Transferred);
}
