//! A store that loses data, or appears to (I3, I11).

use super::harness::*;
use crate::election::*;

pub(super) const CONFIRMING: Operation = Operation::Read { confirm: true };

pub(super) fn rolled_back(seen: i64, found: Option<i64>) -> Notice {
    Notice::StoreRolledBack {
        seen: token(seen),
        found: found.map(token),
        wait: seconds(24),
    }
}

/// Asserts that the candidate noticed the rollback and sends no further `operation` before `due`.
/// After another read shows the rollback, the candidate leads with the next token.
#[track_caller]
fn waits_out_a_rollback(node: &mut Node, operation: &str, due: BootTime, stored: &mut Stored) {
    let sent = node.count(operation);
    assert_eq!(node.reason(), Some(Reason::StoreRolledBack));
    node.run(due - millis(1), stored);
    assert_eq!(node.count(operation), sent, "another claim may still lead");
    node.run(due + seconds(1), stored);
    assert_eq!(node.token(), token(2));
}

#[test]
fn a_reply_of_a_deposed_primary_alone_is_not_trusted() {
    let (mut a, mut stored) = leader("a", at(0));
    a.input(at(1), Input::Watch(Watch::Unclear));
    a.answer_with(at(1), MISSING);
    assert!(a.leads(at(1)));
    assert_eq!(a.answer(at(1), &mut stored), CONFIRMING);
    a.run(at(30), &mut stored);
    assert!(a.leads(at(30)));
    assert_eq!(a.notices, []);
}

#[test]
fn i3_a_deleted_document_makes_the_leader_step_down_and_its_tokens_go_on() {
    let (mut a, mut stored) = leader("a", at(0));
    stored.document = None;
    a.reread(at(1), &mut stored);
    assert!(!a.leads(at(1)));
    assert_eq!(a.notices, [rolled_back(1, None)]);
    assert_eq!(a.count("create"), 1);
    waits_out_a_rollback(&mut a, "create", at(25), &mut stored);
    assert!(a.leads(at(26)));
}

#[test]
fn i3_a_document_that_was_foreign_for_a_while_and_is_missing_then_was_lost() {
    let (mut b, mut stored) = follower_of_vanished();
    b.input(at(1), Input::Watch(Watch::Unclear));
    b.answer_with(at(1), foreign());
    stored.document = None;
    b.reread(at(2), &mut stored);
    assert_eq!(b.reason(), Some(Reason::StoreRolledBack));
    b.run(at(27), &mut stored);
    assert_eq!(b.token(), token(2));
}

#[test]
fn i3_a_restored_document_makes_the_leader_step_down_and_its_tokens_go_on() {
    let (mut a, mut stored) = leader("a", at(0));
    let old = stored.clone();
    for _ in 0..3 {
        let now = a.now() + seconds(1);
        a.release(now, Input::StepDown, &mut stored);
        a.run(now + seconds(24), &mut stored);
    }
    assert_eq!(a.token(), token(4));
    stored = old;
    let now = a.now();
    a.run(now + seconds(4), &mut stored);
    assert_ne!(a.role(), Role::Leader);
    assert_eq!(a.reason(), Some(Reason::StoreRolledBack));
    a.run(now + seconds(60), &mut stored);
    assert_eq!(a.token(), token(5));
}

#[test]
fn a_follower_waits_for_the_longest_duration_it_has_seen() {
    let (_, mut stored) = leader_with("a", at(0), with_long_lease());
    let mut b = follower("b", at(0), &mut stored);
    stored.document = None;
    b.reread(at(1), &mut stored);
    waits_out_a_rollback(&mut b, "create", at(101), &mut stored);
}

#[test]
fn the_recovered_state_reveals_a_store_rollback() {
    let mut stored = Stored::default();
    let mut a = start_with_token("a", at(0), token(40));
    a.serve(at(0), &mut stored);
    assert_eq!(a.reason(), Some(Reason::StoreRolledBack));
    a.run(at(25), &mut stored);
    assert_eq!(a.token(), token(41));
}

/// The leader continues until its own deadline. A restarted follower knows the token only from its
/// directory, which must also record how long the leader may continue.
#[test]
fn i1_a_restarted_follower_waits_for_the_longest_duration_of_its_life_before() {
    let (_, mut stored) = leader_with("a", at(0), with_long_lease());
    let b = follower("b", at(0), &mut stored);
    stored.document = None;
    let mut b = b.successor(at(1));
    b.serve(at(1), &mut stored);
    waits_out_a_rollback(&mut b, "create", at(101), &mut stored);
}

/// The opening of a stream triggers a second read, which supersedes the first read. Only the reply
/// to the first read shows the leader.
#[test]
fn i1_a_document_shown_only_by_an_overtaken_read_is_known_to_have_existed() {
    let (_, stored) = leader("a", at(0));
    let mut b = Node::start("b", at(0));
    let (first, _) = b.take_call();
    b.input(at(0), Input::Watch(Watch::Opened));
    let (second, _) = b.take_call();
    let shown = Found::Lease(stored.lease().clone());
    b.reply(at(0), first, Outcome::Applied(shown));
    let mut gone = Stored::default();
    b.reply(at(1), second, MISSING);
    b.serve(at(1), &mut gone);
    assert_eq!(b.count("create"), 0);
    waits_out_a_rollback(&mut b, "create", at(25), &mut gone);
}

/// An event that is not applied still raises the recorded token, and must raise the duration too.
#[test]
fn i1_a_token_is_never_remembered_without_the_duration_that_goes_with_it() {
    let (mut a, mut stored) = leader("a", at(0));
    let mut newer = stored.lease().clone();
    newer.token = token(2);
    newer.revision = Revision::from_bytes([60; 16]);
    if let Some(holder) = &mut newer.holder {
        holder.claim = Claim::from_bytes([60; 16]);
        holder.lease_duration = Declared::of(seconds(100));
    }
    stored.document = Some(newer);
    a.event(at(1), &stored);
    let remembered = a.remembered.last().map(|(_, token, wait)| (*token, *wait));
    assert_eq!(remembered, Some((token(2), seconds(100))));
}

#[test]
fn i11_a_document_that_turns_foreign_under_a_leader_ends_its_leadership() {
    let (mut a, _) = leader("a", at(0));
    a.tick(at(3));
    a.answer_with(at(3), Outcome::Rejected);
    a.answer_with(at(3), foreign());
    a.assert_role(Role::Follower, Reason::Rejected);
    let writes = a.sent.len() - a.count("read");
    for _ in 0..5 {
        let next = a.wake();
        a.answer_with(next, foreign());
    }
    assert_eq!(a.sent.len() - a.count("read"), writes);
}

#[test]
fn a_store_that_was_not_read_for_a_lease_duration_makes_the_role_unknown() {
    let (_, mut stored) = leader("a", at(0));
    let mut b = Node::start("b", at(0));
    assert_eq!(b.role(), Role::Unknown);
    b.serve(at(0), &mut stored);
    assert_eq!(b.role(), Role::Follower);
    b.run_cut_off(at(24) - millis(1), &Outcome::Failed);
    assert_eq!(b.role(), Role::Follower);
    b.run_cut_off(at(25), &Outcome::Failed);
    assert_eq!(b.role(), Role::Unknown);
    assert_eq!(b.election.status().holder, None);
}

#[test]
fn the_reason_for_an_earlier_role_does_not_explain_an_outage() {
    let (mut a, mut stored) = leader("a", at(0));
    a.release(at(1), Input::StepDown, &mut stored);
    a.assert_role(Role::Follower, Reason::Requested);
    a.run_cut_off(at(26), &Outcome::Failed);
    assert_eq!((a.role(), a.reason()), (Role::Unknown, None));
    a.input(at(27), Input::Watch(Watch::Unclear));
    a.serve_reads(at(27), &mut stored);
    assert_eq!((a.role(), a.reason()), (Role::Follower, None));
}

#[test]
fn a_loss_by_the_deadline_is_the_reason_until_its_outage_ends() {
    let (mut a, mut stored) = leader("a", at(0));
    a.run_cut_off(at(20), &Outcome::Failed);
    a.assert_role(Role::Follower, Reason::Deadline);
    a.run_cut_off(at(40), &Outcome::Failed);
    a.assert_role(Role::Unknown, Reason::Deadline);
    a.input(at(41), Input::Watch(Watch::Unclear));
    a.serve_reads(at(41), &mut stored);
    assert_eq!((a.role(), a.reason()), (Role::Follower, None));
}

#[test]
fn a_loss_by_the_deadline_does_not_explain_a_later_outage() {
    let (mut a, mut stored) = leader("a", at(0));
    a.run_cut_off(at(20), &Outcome::Failed);
    a.input(at(21), Input::Watch(Watch::Unclear));
    a.serve_reads(at(21), &mut stored);
    a.assert_role(Role::Follower, Reason::Deadline);
    a.run_cut_off(at(60), &Outcome::Failed);
    assert_eq!((a.role(), a.reason()), (Role::Unknown, None));
}

#[test]
fn an_idle_stream_is_contact_enough() {
    let (mut a, mut stored) = leader("a", at(0));
    a.release(at(1), Input::StepDown, &mut stored);
    stored.lease_mut().paused = true;
    a.event(at(2), &stored);
    for second in [10, 20, 30, 40, 50] {
        a.input(at(second), Input::Watch(Watch::Alive));
        assert_eq!(a.role(), Role::Paused);
    }
    a.tick(at(74));
    assert_eq!(a.role(), Role::Unknown);
}

/// The stream that is already open still answers at the longer intervals of the old durations.
#[test]
fn a_shorter_lease_duration_does_not_make_the_last_answer_old() {
    let (mut a, mut stored) = leader("a", at(0));
    a.release(at(1), Input::StepDown, &mut stored);
    stored.lease_mut().paused = true;
    a.event(at(2), &stored);
    let short = TimingSettings::of_millis([3_000, 2_000, 300, 200, 300, 200]);
    a.input(at(10), Input::Reconfigure(with_timings(short)));
    assert_eq!(a.role(), Role::Paused);
    a.input(at(11), Input::Watch(Watch::Alive));
    a.tick(at(14) - millis(1));
    assert_eq!(a.role(), Role::Paused);
    a.tick(at(14));
    assert_eq!(a.role(), Role::Unknown);
}

#[test]
fn i1_an_insert_that_succeeds_proves_that_the_document_seen_meanwhile_is_gone() {
    let mut stored = Stored::default();
    let mut b = Node::start("b", at(0));
    b.serve_reads(at(0), &mut stored);
    assert_eq!(b.waiting(), ["create"]);
    // While the insert is in flight, `a` creates the document and leads.
    let a = Node::served("a", at(0), &mut stored);
    assert!(a.leads(at(0)));
    b.input(at(1), Input::Watch(Watch::Opened));
    let (read, operation) = b.calls.pop_back().expect("a read");
    let outcome = stored.apply(&b.identity, &operation);
    b.reply(at(1), read, outcome);
    // The document is deleted, and then the insert is applied.
    stored.document = None;
    b.serve(at(2), &mut stored);
    assert_eq!(b.reason(), Some(Reason::StoreRolledBack));
    b.run(at(25), &mut stored);
    assert_eq!(b.count("acquire"), 0, "a may still lead");
}

/// As in the previous test, but `b` knew the token before, so its insert uses this token.
#[test]
fn i1_a_document_made_by_oneself_after_another_one_was_seen_went_back_too() {
    let (_, stored) = leader("a", at(0));
    let mut b = start_with_token("b", at(0), token(1));
    let mut gone = Stored::default();
    b.input(at(0), Input::Watch(Watch::Opened));
    b.serve(at(0), &mut gone);
    b.tick(at(24));
    b.event(at(25), &stored);
    assert_eq!(b.answer(at(25), &mut gone).as_str(), "create");
    assert_eq!(b.count("acquire"), 0);
    waits_out_a_rollback(&mut b, "acquire", at(49), &mut gone);
}

#[test]
fn a_token_that_was_never_stored_is_not_remembered_as_seen() {
    // The takeover is not applied, and the process exits.
    let (b, mut stored) = taking_over();
    let remembered = b.remembered.last().map(|(_, token, _)| *token);
    assert_eq!(remembered, Some(token(1)));
    let mut b = b.successor(at(25));
    b.serve(at(25), &mut stored);
    assert_eq!((b.role(), b.notices.len()), (Role::Follower, 0));
}

#[test]
fn a_rejected_claim_no_longer_proves_an_exit() {
    let (mut a, mut stored) = leader("a", at(0));
    stored.rewrite();
    a.tick(at(3));
    a.serve(at(3), &mut stored);
    assert_eq!(a.reason(), Some(Reason::Duplicate));
    assert_eq!(a.remembered.last().map(|(claim, _, _)| *claim), Some(None));
}

#[test]
fn a_document_made_by_oneself_after_a_higher_token_was_seen_went_back_too() {
    let (_, stored) = leader("a", at(0));
    let mut b = Node::start("b", at(0));
    b.answer_with(at(0), MISSING);
    b.event(at(1), &stored);
    let mut gone = Stored::default();
    assert_eq!(b.answer(at(1), &mut gone).as_str(), "create");
    b.serve(at(1), &mut gone);
    assert!(matches!(b.notices[..], [Notice::StoreRolledBack { .. }]));
}

#[test]
fn i1_a_document_that_stood_in_the_way_of_an_insert_and_is_missing_was_deleted() {
    let mut a = Node::start("a", at(0));

    a.answer_with(at(0), MISSING);
    a.answer_with(at(0), Outcome::Rejected);
    a.answer_with(at(0), MISSING);
    assert_eq!(a.answer_with(at(0), MISSING), CONFIRMING);
    assert_eq!(a.reason(), Some(Reason::StoreRolledBack));
    let mut stored = Stored::default();
    a.run(at(24) - millis(1), &mut stored);
    assert_eq!(a.count("create"), 1, "the holder may still lead");
    a.run(at(26), &mut stored);
    assert!(a.leads(at(26)));
}

#[test]
fn i3_a_token_lowered_before_an_adoption_neither_grants_leadership_nor_aborts() {
    let (_, mut stored) = leader("a", at(0));
    stored.lease_mut().token = token(6);
    let mut b = follower("b", at(0), &mut stored);
    stored.vacate();
    b.event(at(1), &stored);
    b.lose_reply(at(1), &mut stored);
    assert_eq!(stored.lease().token, token(7));
    stored.lease_mut().token = token(6);
    b.run(at(10), &mut stored);
    assert!(
        !b.leads(at(10)),
        "the next leader would also get this token"
    );
    assert_eq!(b.notices, [rolled_back(7, Some(6))]);
    b.run(at(60), &mut stored);
    assert_eq!((b.leads(at(60)), b.token()), (true, token(8)));
}

#[test]
fn i3_a_leader_whose_token_is_lowered_steps_down_once_a_linearizable_read_shows_it() {
    let (mut a, mut stored) = leader("a", at(0));
    stored.lease_mut().token = token(0);
    a.tick(at(3));
    a.answer(at(3), &mut stored);
    assert!(a.leads(at(3)));
    assert_eq!(a.answer(at(3), &mut stored), CONFIRMING);
    assert!(!a.leads(at(3)));
    assert_eq!(a.reason(), Some(Reason::StoreRolledBack));
    a.run(at(60), &mut stored);
    assert_eq!(a.token(), token(2));
}

#[test]
fn i3_a_mix_of_two_documents_gives_no_used_token() {
    let (mut a, mut b, mut stored) = leader_and_follower();
    // `b` missed the claim with token 2. The stream of `b` reports an older document to which the
    // release of this claim was applied.
    let before = stored.lease().clone();
    a.release(at(1), Input::StepDown, &mut stored);
    let mut c = Node::served("c", at(1), &mut stored);
    assert_eq!(c.token(), token(2));
    c.release(at(2), Input::Shutdown, &mut stored);
    let mixed = Lease {
        revision: stored.lease().revision,
        holder: None,
        ..before
    };
    b.input(at(3), Input::Watch(Watch::Changed(mixed)));
    assert_eq!(b.waiting(), ["acquire"]);
    let (call, outcome) = b.perform(&mut stored);
    assert_eq!(outcome, Outcome::Rejected);
    b.reply(at(3), call, outcome);
    b.serve(at(3), &mut stored);
    assert_eq!((b.leads(at(3)), b.token()), (true, token(3)));
}

#[test]
fn i1_a_holder_that_is_put_together_of_two_documents_is_not_taken_over() {
    let short = TimingSettings::of_millis([8_000, 5_000, 700, 300, 1_000, 1_000]);
    let short = with_timings(short);
    let (mut a, mut stored) = leader_with("a", at(0), short);
    let mut b = follower("b", at(0), &mut stored);
    let before = stored.lease().clone();
    a.release(at(1), Input::StepDown, &mut stored);
    let c = Node::served("c", at(1), &mut stored);
    let mixed = Lease {
        revision: stored.lease().revision,
        ..before
    };
    b.input(at(2), Input::Watch(Watch::Changed(mixed)));
    b.tick(at(10));
    let taken = b.calls.iter().find(|(_, o)| o.as_str() == "take_over");
    let (_, operation) = taken
        .expect("b takes over after the 8 s that a declared")
        .clone();
    assert_eq!(stored.apply(&b.identity, &operation), Outcome::Rejected);
    assert!(
        c.leads(at(10)),
        "other candidates wait for the 24 s that c declared"
    );
}
