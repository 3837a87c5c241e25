//! The sources of authority, its duration, and replies that never grant it (I1, I2, I4, I7).

use super::harness::*;
use crate::election::*;

#[test]
fn a_first_candidate_creates_acquires_and_leads() {
    let mut stored = Stored::default();
    let mut a = Node::start("a", at(0));
    assert_eq!((a.role(), a.waiting()), (Role::Unknown, vec!["read"]));
    a.serve(at(0), &mut stored);
    assert_eq!(a.sent_after(0), ["read", "create", "acquire"]);
    assert!(a.leads(at(0)));
    assert_eq!((a.token(), a.reason()), (token(1), Some(Reason::Acquired)));
    assert_eq!(stored.lease().token, token(1));
    let claim = Some(stored.claim());
    // The candidate records the token only after it has seen this token in the store.
    let remembered = |n| (claim, token(n), seconds(24));
    assert_eq!(a.remembered, [remembered(0), remembered(1)]);
}

#[test]
fn i2_authority_counts_from_before_the_send_not_from_the_reply() {
    let mut stored = Stored::default();
    let mut a = Node::start("a", at(0));
    a.answer_with(at(0), MISSING);
    a.answer(at(1), &mut stored);
    // The acquisition is sent at 1 s and answered at 3 s.
    let (acquire, outcome) = a.perform(&mut stored);
    a.reply(at(3), acquire, outcome);
    assert_eq!(a.valid_until(), at(1) + seconds(18));
}

#[test]
fn a_renewal_goes_out_every_renew_interval_and_extends_from_its_send() {
    let (mut a, mut stored) = leader("a", at(0));
    assert_eq!(a.election.next_wakeup(), Some(at(3)));
    a.tick(at(3));
    assert_eq!(a.answer(at(5), &mut stored).as_str(), "renew");
    a.assert_role(Role::Leader, Reason::Acquired);
    assert_eq!(a.valid_until(), at(3) + seconds(18));
    assert_eq!(a.election.next_wakeup(), Some(at(6)));
}

#[test]
fn the_leaders_of_a_shared_clock_soon_renew_together() {
    let since_1970 = seconds(1_795_000_000);
    for (interval, slot, began, offset) in [
        (millis(3_000), millis(250), millis(0), seconds(0)),
        (millis(3_000), millis(250), millis(249), millis(77)),
        (
            millis(2_000),
            millis(250),
            millis(1),
            since_1970 + millis(130),
        ),
        (millis(2_600), millis(2_600) / 11, millis(249), since_1970),
    ] {
        let candidate = Candidate {
            shared_clock_offset: Some(offset),
            tunables: with_timings(TimingSettings {
                renew_interval: interval,
                ..TimingSettings::default()
            }),
            ..candidate("a")
        };
        let (mut stored, mut sent) = (Stored::default(), at(0) + began);
        let mut a = Node::begin(candidate, sent);
        a.serve(sent, &mut stored);
        for renewal in 0..600 {
            let due = a.election.next_wakeup().expect("renews");
            assert!(due <= sent + interval, "renewal {renewal} is late");
            let earliest = sent + interval - interval / 1024;
            assert!(due >= earliest, "renewal {renewal} is early");
            if renewal > 500 {
                let shared = u128::from(due.as_nanos()) + offset.as_nanos();
                let into = shared % slot.as_nanos();
                assert_eq!(
                    into, 0,
                    "renewal {renewal} is not at the beginning of a slot"
                );
            }
            // A delay of 1 ms is shorter than 1/1024 of the interval, so the next renewal makes up
            // for it.
            sent = due + millis(renewal % 2);
            a.tick(sent);
            a.serve(sent, &mut stored);
            assert_eq!(a.valid_until(), sent + seconds(18));
        }
    }
}

#[test]
fn i4_at_its_deadline_a_leader_has_stepped_down() {
    let (mut a, _) = leader("a", at(0));
    a.run_cut_off(at(60), &Outcome::Failed);
    assert!(!a.leads(at(18)));
    let lost = a.transitions.iter().filter(|t| t.from == Role::Leader);
    let lost: Vec<_> = lost.map(|t| (t.reason, t.lasted)).collect();
    assert_eq!(lost, [(Some(Reason::Deadline), seconds(18))]);
}

#[test]
fn i7_a_renewal_of_unknown_outcome_extends_nothing() {
    let (mut a, _) = leader("a", at(0));
    a.run_cut_off(at(17), &Outcome::Unknown);
    assert!(a.count("renew") > 3, "a keeps retrying");
    assert_eq!(a.valid_until(), at(18));
    a.tick(at(18));
    assert_eq!(a.role(), Role::Follower);
}

#[test]
fn i7_an_acquisition_of_unknown_outcome_grants_nothing_until_it_is_adopted_by_a_renewal() {
    let mut stored = Stored::free(token(4));
    let mut a = Node::start("a", at(0));
    let (read, outcome) = a.perform(&mut stored);
    a.reply(at(0), read, outcome);
    // The write is applied, and its reply is lost.
    a.lose_reply(at(3), &mut stored);
    assert_eq!(a.role(), Role::Follower);
    let retry = a.wake();
    a.answer(retry, &mut stored);
    // The read shows the candidate as the holder. A read alone grants nothing.
    assert!(!a.leads(retry));
    let renewal = a.answer(retry + seconds(1), &mut stored);
    assert_eq!(renewal.as_str(), "renew");
    assert_eq!(a.valid_until(), retry + seconds(18));
    assert_eq!(a.token(), token(5));
}

#[test]
fn i7_the_late_true_outcome_of_an_acquisition_is_only_a_hint() {
    let mut stored = Stored::free(token(4));
    let mut a = Node::start("a", at(0));
    a.answer(at(0), &mut stored);
    let (acquire, operation) = a.take_call();
    a.reply(at(3), acquire, Outcome::Unknown);
    let applied = stored.apply(&a.identity, &operation);
    a.reply(at(3) + millis(1), acquire, applied);
    assert!(!a.leads(at(3)));
    assert_eq!(a.waiting().last(), Some(&"read"));
    a.serve(at(3) + millis(2), &mut stored);
    assert_eq!(a.valid_until(), at(3) + millis(2) + seconds(18));
}

#[test]
fn a_late_acknowledgement_of_a_renewal_counts_from_its_own_send() {
    let (mut a, mut stored) = leader("a", at(0));
    a.tick(at(3));
    let (renew, applied) = a.perform(&mut stored);
    a.reply(at(6), renew, Outcome::Unknown);
    assert_eq!(a.valid_until(), at(18));
    a.reply(at(6) + millis(500), renew, applied);
    assert_eq!(a.valid_until(), at(3) + seconds(18));
}

#[test]
fn i4_an_acknowledgement_that_waited_in_a_frozen_process_does_not_revive_a_claim() {
    let (mut a, mut stored) = leader("a", at(0));
    a.tick(at(15));
    let (renew, applied) = a.perform(&mut stored);
    // The process is frozen past its deadline, and the reply is its next input. The renewal was
    // sent at 15 s, so it would extend authority to 33 s if its reply counted.
    a.reply(at(20), renew, applied);
    assert!(!a.leads(at(20)));
    assert_eq!(a.reason(), Some(Reason::Deadline));
    assert_eq!(a.waiting(), ["release"]);
}

#[test]
fn a_hung_renewal_is_joined_by_one_more_when_the_primary_changes() {
    let (mut a, mut stored) = leader("a", at(0));
    a.tick(at(3));
    assert_eq!(a.waiting(), ["renew"]);
    a.input(at(4), Input::PrimaryChanged);
    assert_eq!(a.waiting(), ["renew", "renew"]);
    a.input(at(4), Input::PrimaryChanged);
    assert_eq!(a.calls.len(), 2, "at most two renewals are unanswered");
    a.take_call();
    a.answer(at(4), &mut stored);
    assert_eq!(a.valid_until(), at(4) + seconds(18));
}

/// Returns a leader with renewals sent at 3 s and 4 s, and the store.
fn renewing_twice() -> (Node, Stored) {
    let (mut a, stored) = leader("a", at(0));
    a.tick(at(3));
    a.input(at(4), Input::PrimaryChanged);
    (a, stored)
}

#[test]
fn renewals_acknowledged_out_of_order_never_shorten_authority() {
    let (mut a, mut stored) = renewing_twice();
    let (first, first_outcome) = a.perform(&mut stored);
    a.answer(at(5), &mut stored);
    assert_eq!(a.valid_until(), at(4) + seconds(18));
    a.reply(at(5), first, first_outcome);
    assert_eq!(a.valid_until(), at(4) + seconds(18));
    a.run(at(12), &mut stored);
    assert!(a.leads(at(12)), "later renewals match the second renewal");
}

#[test]
fn the_late_rejection_of_an_overtaken_renewal_means_nothing() {
    let (mut a, mut stored) = renewing_twice();
    let (first, operation) = a.take_call();
    let (second, second_outcome) = a.perform(&mut stored);
    let late = stored.apply(&a.identity, &operation);
    assert_eq!(late, Outcome::Rejected, "a late renewal has no effect");
    a.reply(at(5), first, late);
    assert!(
        a.leads(at(5)),
        "the second renewal may have overtaken the first"
    );
    a.reply(at(5), second, second_outcome);
    assert!(a.leads(at(5)));
    a.run(at(30), &mut stored);
    assert!(a.leads(at(30)));
}

#[test]
fn a_renewal_that_landed_unacknowledged_does_not_end_the_chain() {
    let (mut a, mut stored) = leader("a", at(0));
    for second in [3, 7] {
        a.tick(at(second));
        a.lose_reply(at(second), &mut stored);
    }
    a.run(at(40), &mut stored);
    assert!(a.leads(at(40)));
}

#[test]
fn timings_belong_to_a_claim() {
    let (mut a, mut stored) = leader("a", at(0));
    let longer = with_timings(TimingSettings {
        lease_duration: seconds(240),
        renew_deadline: seconds(180),
        ..TimingSettings::default()
    });
    a.input(at(1), Input::Reconfigure(longer));
    a.run(at(4), &mut stored);
    // Other candidates wait for the declared 24 s.
    assert_eq!(a.valid_until(), at(3) + seconds(18));
    a.release(at(5), Input::StepDown, &mut stored);
    a.run(at(5) + seconds(240), &mut stored);
    assert_eq!(stored.holder_mut().lease_duration.millis, 240_000);
}

#[test]
fn i9_dates_in_the_document_decide_nothing() {
    let (_, mut stored) = leader("a", at(0));
    for date in [i64::MIN, 0, i64::MAX] {
        stored.holder_mut().acquired_at = WallMillis(date);
        let mut b = follower("b", at(10), &mut stored.clone());
        b.run(at(33), &mut stored);
        assert_eq!(b.role(), Role::Follower);
        assert_eq!(b.count("take_over"), 0);
    }
}

#[test]
fn a_reload_does_not_change_the_retries_of_a_claim() {
    let (mut a, _) = leader("a", at(0));
    let slower = with_timings(TimingSettings {
        lease_duration: seconds(60),
        renew_deadline: seconds(40),
        retry_interval: seconds(8),
        ..TimingSettings::default()
    });
    a.input(at(1), Input::Reconfigure(slower));
    a.tick(at(3));
    a.answer_with(at(3), Outcome::Failed);
    let retry = a.election.next_wakeup().expect("it leads");
    assert!(retry <= at(3) + millis(1200), "{retry:?}");
}

#[test]
fn a_late_failure_does_not_postpone_the_retry() {
    let (mut a, _) = leader("a", at(0));
    a.tick(at(3));
    let (call, _) = a.take_call();
    a.reply(at(6), call, Outcome::Unknown);
    let retry = a.election.next_wakeup().expect("it leads");
    a.reply(retry - millis(1), call, Outcome::Unknown);
    assert_eq!(a.election.next_wakeup(), Some(retry));
}
