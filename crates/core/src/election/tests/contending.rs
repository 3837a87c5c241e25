//! The actions of a candidate without a claim, and when they are permitted (I3, I8, I10, I11).

use super::harness::*;
use crate::election::*;

#[test]
fn i8_a_follower_with_a_stream_reads_once_in_a_lease_duration_while_the_holder_renews() {
    let (mut a, mut b, mut stored) = leader_and_follower();
    let reads = b.sent.len();
    for second in 1..=100 {
        a.run(at(second), &mut stored);
        b.event(at(second), &stored);
        b.run(at(second), &mut stored);
    }
    assert_eq!(b.sent_after(reads), ["read"; 4]);
    assert_eq!(b.streams_reopened, 0, "the stream reported everything");
    assert_eq!(b.role(), Role::Follower);
}

#[test]
fn i1_a_contender_waits_for_the_declared_duration_of_an_unchanged_revision() {
    let (mut a, mut stored) = leader("a", at(0));
    let mut b = follower("b", at(1), &mut stored);
    assert_eq!(
        b.election.next_wakeup(),
        Some(at(7)),
        "the candidate reads meanwhile"
    );
    // A renewal that is seen at 10 s restarts the wait.
    a.run(at(3), &mut stored);
    b.event(at(10), &stored);
    b.sends_nth(1, "take_over", at(34), &mut stored);
    assert_eq!((b.role(), b.token()), (Role::Leader, token(2)));
    let overtook = Notice::Overtook {
        identity: identity("a"),
        token: token(1),
        silent: seconds(24),
    };
    assert_eq!(b.notices, [overtook]);
    assert_eq!(stored.history[0].reason, Reason::TookOver);
}

#[test]
fn i1_the_holders_duration_counts_not_the_contenders_own() {
    let (_, mut stored) = leader_with("a", at(0), with_long_lease());
    let mut b = follower("b", at(0), &mut stored);
    b.sends_nth(1, "take_over", at(100), &mut stored);
    assert_eq!(b.role(), Role::Leader);
}

#[test]
fn an_absurd_declared_duration_counts_as_an_hour() {
    for absurd in [0, -1, 999, i64::MAX] {
        let (_, mut stored) = leader("a", at(0));
        stored.holder_mut().lease_duration = Declared { millis: absurd };
        let mut b = Node::start("b", at(0));
        b.serve(at(0), &mut stored);
        let notice = Notice::InvalidLeaseDuration {
            identity: identity("a"),
            millis: absurd,
        };
        assert_eq!(b.notices, [notice]);
        b.open_stream(at(0), &mut stored);
        assert_eq!(b.notices.len(), 1, "reported once per claim");
        b.sends_nth(1, "take_over", at(3600), &mut stored);
        assert_eq!(b.role(), Role::Leader);
    }
}

#[test]
fn i8_an_unresponsive_stream_costs_latency_never_safety() {
    let (mut a, mut b, mut stored) = leader_and_follower();
    // b receives no event and no reply to its reads. Its takeover names the old revision, so the
    // store rejects it.
    for second in 1..=24 {
        a.run(at(second), &mut stored);
        b.tick(at(second));
        while b.waiting().first() == Some(&"read") {
            b.answer_with(at(second), Outcome::Unknown);
        }
    }
    b.serve(at(24), &mut stored);
    assert_eq!(b.count("take_over"), 1);
    assert!(a.leads(at(24)) && !b.leads(at(24)));
    assert_eq!(b.sent_after(b.sent.len() - 1), ["read"]);
}

#[test]
fn without_a_stream_a_follower_polls() {
    let (mut a, mut stored) = leader("a", at(0));
    let mut b = Node::served("b", at(0), &mut stored);
    b.input(at(0), Input::Watch(Watch::Lost));
    for second in 1..=20 {
        a.run(at(second), &mut stored);
        b.run(at(second), &mut stored);
    }
    let reads = b.count("read");
    // The candidate reads once per second, ± 20 %.
    assert!((17..=26).contains(&reads), "{reads} reads in 20 s");
    assert_eq!(b.sent.len(), reads);
}

#[test]
fn a_release_wakes_a_follower_which_acquires_without_a_read() {
    let (mut a, mut b, mut stored) = leader_and_follower();
    a.release(at(1), Input::Shutdown, &mut stored);
    assert!(a.exited);
    let before = b.sent.len();
    b.observe(at(1), &mut stored);
    assert_eq!(b.sent_after(before), ["acquire"]);
    assert_eq!((b.role(), b.token()), (Role::Leader, token(2)));
}

#[test]
fn candidates_that_lost_races_spread_out() {
    let (mut b, mut stored) = follower_of_vanished();
    for round in 1..=4 {
        stored.vacate();
        b.event(at(round), &stored);
        if round > 1 && b.calls.is_empty() {
            assert!(b.wake().since(at(round)) <= millis(40));
        }
        let lost = at(round) + millis(50);
        b.answer_with(lost, Outcome::Rejected);
        stored.rewrite();
        stored.lease_mut().holder = Some(someone("other"));
        assert_eq!(b.answer(lost, &mut stored).as_str(), "read");
    }
}

fn someone(name: &str) -> Holder {
    Holder {
        identity: identity(name),
        session: Session::from_bytes([0; 16]),
        claim: Claim::from_bytes([200; 16]),
        acquired_at: WallMillis(0),
        lease_duration: Declared { millis: 24_000 },
        renew_interval: None,
        token: None,
    }
}

#[test]
fn i3_the_token_exceeds_the_highest_ever_seen() {
    let mut stored = Stored::free(token(4));
    let mut a = start_with_token("a", at(0), token(3));
    a.serve(at(0), &mut stored);
    assert_eq!(a.token(), token(5));
}

#[test]
fn i3_no_candidate_leads_when_the_token_cannot_grow() {
    let mut stored = Stored::free(token(i64::MAX));
    let mut a = Node::served("a", at(0), &mut stored);
    a.run(at(100), &mut stored);
    assert_eq!(a.role(), Role::Follower);
    assert_eq!(a.notices, [Notice::TokensExhausted]);
}

#[test]
fn i11_a_foreign_document_is_never_written_and_looked_at_again() {
    let mut a = Node::start("a", at(0));

    for _ in 0..10 {
        let now = a.now();
        assert_eq!(a.answer_with(now, foreign()).as_str(), "read");
        a.wake();
    }
    assert_eq!(a.count("read"), a.sent.len());
    assert_eq!(a.notices.len(), 1, "said once");
    assert!(!a.leads(at(5)));
}

#[test]
fn a_claim_proven_to_have_ended_is_taken_over_at_once() {
    let (a, mut stored) = leader("a", at(0));
    let dead = stored.claim();
    let mut b = a.successor(at(1));
    b.serve(at(1), &mut stored);
    assert_eq!((b.role(), b.token()), (Role::Leader, token(2)));
    assert_ne!(stored.claim(), dead);
    assert_eq!(b.notices, [Notice::Succeeded { token: token(1) }]);
}

#[test]
fn the_same_identity_proves_nothing() {
    let (_, mut stored) = leader("a", at(0));
    let mut b = Node::served("a", at(1), &mut stored);
    b.open_stream(at(1), &mut stored);
    b.run(at(24), &mut stored);
    assert_eq!(b.count("take_over"), 0);
    // A candidate without authority must not show itself as the holder.
    assert_eq!(b.election.status().holder, None);
}

#[test]
fn i10_one_healthy_candidate_leads_within_the_declared_duration() {
    let (_, mut stored) = leader("a", at(0));
    let mut b = Node::served("b", at(5), &mut stored);
    // The bound holds even if b only polls and its first read is late.
    b.run(at(5) + seconds(24) + seconds(8), &mut stored);
    assert_eq!(b.role(), Role::Leader);
}

#[test]
fn i10_a_candidate_that_was_cut_off_leads_again_when_the_store_is_back() {
    let (mut a, mut stored) = leader("a", at(0));
    a.run_cut_off(at(100), &Outcome::Unknown);
    assert_eq!(
        a.role(),
        Role::Unknown,
        "the store has not answered for a lease duration"
    );
    a.run(at(100) + seconds(8), &mut stored);
    // A candidate does not wait for the expiry of its own ended claim.
    assert!(a.leads(at(108)));
    assert_eq!(a.token(), token(2));
}

#[test]
fn a_lost_race_at_the_creation_is_read_and_followed() {
    let mut stored = Stored::default();
    let mut a = Node::start("a", at(0));
    let mut b = Node::start("b", at(0));
    b.answer_with(at(0), MISSING);
    assert_eq!(b.waiting(), ["create"]);
    a.serve(at(0), &mut stored);
    b.serve(at(0), &mut stored);
    assert!(a.leads(at(0)));
    assert_eq!((b.role(), b.count("acquire")), (Role::Follower, 0));
}

#[test]
fn a_read_from_before_the_stream_was_open_does_not_count() {
    let (_, mut stored) = leader("a", at(0));
    let mut b = Node::start("b", at(0));
    let (early, _) = b.take_call();
    b.input(at(0), Input::Watch(Watch::Opened));
    assert_eq!(
        b.waiting(),
        ["read"],
        "a read follows the opening of the stream"
    );
    b.reply(at(0), early, MISSING);
    assert_eq!(b.count("create"), 0);
    b.serve(at(0), &mut stored);
    assert_eq!(b.role(), Role::Follower);
}

#[test]
fn news_that_comes_during_a_read_is_read_before_a_write() {
    let (mut b, mut stored) = follower_of_vanished();
    stored.vacate();
    b.input(at(1), Input::Watch(Watch::Unclear));
    b.input(at(1), Input::Watch(Watch::Unclear));
    b.answer(at(1), &mut stored);
    assert_eq!(b.waiting(), ["read"]);
    b.serve(at(1), &mut stored);
    assert_eq!(b.token(), token(2));
}

#[test]
fn an_event_older_than_the_last_read_is_not_applied() {
    let (_, mut stored) = leader("a", at(0));
    stored.lease_mut().token = token(5);
    stored.holder_mut().token = Some(token(5));
    let mut b = follower("b", at(0), &mut stored);
    let mut old = stored.clone();
    old.lease_mut().token = token(4);
    old.vacate();
    b.event(at(1), &old);
    assert_eq!(b.waiting(), ["read"], "b reads, and acquires nothing");
    let holder = b.election.status().holder.clone().expect("a leads");
    assert_eq!((holder.identity, holder.token), (identity("a"), token(5)));
}

/// Ids are random, but may repeat after a partial restore or on a forked VM.
#[test]
fn i1_a_revision_that_repeats_under_another_claim_or_token_was_seen_only_now() {
    for (claim, raised) in [
        (Claim::from_bytes([60; 16]), 1),
        (Claim::from_bytes([60; 16]), 2),
    ] {
        let (mut b, mut stored) = follower_of_vanished();
        stored.holder_mut().claim = claim;
        stored.lease_mut().token = token(raised);
        b.observe(at(20), &mut stored);
        b.run(at(44) - millis(1), &mut stored);
        assert_eq!(b.count("take_over"), 0, "{raised}");
        b.run(at(44), &mut stored);
        assert_eq!(b.count("take_over"), 1, "{raised}");
    }
    let (mut b, mut stored) = follower_of_vanished();
    stored.lease_mut().token = token(2);
    b.observe(at(20), &mut stored);
    b.run(at(44) - millis(1), &mut stored);
    assert_eq!(b.count("take_over"), 0);
}
