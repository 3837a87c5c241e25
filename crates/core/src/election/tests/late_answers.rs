//! Replies that arrive late, in an unexpected order.

use super::harness::*;
use crate::election::*;

#[test]
fn i10_the_late_reply_of_an_acquisition_during_its_adoption_leaves_nothing_undone() {
    let mut stored = Stored::default();
    let mut a = Node::start("a", at(0));
    a.answer(at(0), &mut stored);
    let (create, created) = a.perform(&mut stored);
    a.input(at(0), Input::Watch(Watch::Opened));
    a.reply(at(0), create, created);
    a.serve_up_to("acquire", at(0), &mut stored);
    let (acquire, late) = a.perform(&mut stored);
    assert!(matches!(late, Outcome::Applied(_)));
    a.serve(at(0), &mut stored);
    // The timeout makes the outcome unknown.
    a.reply(at(3), acquire, Outcome::Unknown);
    let due = a.wake();
    assert_eq!(a.answer(due, &mut stored).as_str(), "read");
    assert_eq!(a.waiting()[0], "renew");
    let (adopt, adopted) = a.perform(&mut stored);
    // The reply to the acquisition arrives after the read.
    a.reply(due, acquire, late);
    a.reply(due, adopt, adopted);
    assert_eq!(a.role(), Role::Leader);
    a.calls.clear(); // The reply to the read in flight has no effect.
    a.run(at(60), &mut stored);
    assert_eq!(a.role(), Role::Leader);
    let now = a.now();
    a.release(now, Input::StepDown, &mut stored);
    // No other candidate exists, so `a` must lead again after one lease duration.
    a.run(now + seconds(600), &mut stored);
    assert_eq!(a.role(), Role::Leader, "a never leads again");
}

#[test]
fn a_requested_step_down_that_meets_its_deadline_stays_out() {
    let (mut a, mut stored) = leader_with("a", at(0), with_handoff(seconds(2)));
    a.run_cut_off(at(17), &Outcome::Failed);
    a.demote(at(17), Input::StepDown);
    assert_eq!(a.role(), Role::Stopping);
    a.run_cut_off(at(20), &Outcome::Failed);
    a.run(at(24), &mut stored);
    assert_ne!(a.role(), Role::Leader, "the cooldown began at 17 s");
}

#[test]
fn files_that_are_demoted_late_do_not_hold_the_release_back() {
    let (mut b, mut stored) = leader("b", at(0));
    b.run(at(4), &mut stored);
    b.input(at(4), Input::StepDown);
    b.tick(at(4) + millis(500));
    b.demoted(at(4) + millis(600), &mut stored);
    b.run(at(6), &mut stored);
    assert_ne!(b.role(), Role::Stopping, "the files were demoted at 4.6 s");
}

#[test]
fn a_read_answered_before_the_release_is_forgotten() {
    let (mut a, mut stored) = leader("a", at(0));
    a.run(at(2), &mut stored);
    a.input(at(2), Input::Watch(Watch::Unclear));
    let (read, old) = a.perform(&mut stored);
    a.release(at(2), Input::StepDown, &mut stored);
    a.reply(at(2), read, old);
    a.serve(at(2), &mut stored);
    // The cooldown lasts 24 s, until second 26; then the candidate should lead.
    a.run(at(27), &mut stored);
    assert_eq!(a.role(), Role::Leader);
}

#[test]
fn a_foreign_document_in_the_late_answer_to_an_old_read_ends_nothing() {
    let mut stored = Stored::default();
    let mut a = Node::start("a", at(0));
    let (read, _) = a.take_call();
    a.reply(at(3), read, Outcome::Unknown);
    a.run(at(10), &mut stored);
    assert_eq!(a.role(), Role::Leader);
    a.reply(at(10), read, foreign());
    assert_eq!(a.role(), Role::Leader);
}

#[test]
fn i11_after_a_foreign_document_in_a_late_answer_a_contender_reads_before_it_writes() {
    let (_, mut stored) = leader("a", at(0));
    let mut b = Node::start("b", at(1));
    let (old, _) = b.take_call();
    b.reply(at(4), old, Outcome::Unknown);
    b.run(at(8), &mut stored);
    b.reply(at(8), old, foreign());
    let (_, next) = b.take_call();
    assert_eq!(next, Operation::Read { confirm: false });
}

#[test]
fn an_adoption_that_meets_a_pause_steps_down_for_it() {
    let mut stored = Stored::default();
    let mut a = Node::start("a", at(0));
    // The acquisition is applied and its reply is lost, but a read shows the new claim.
    a.serve_up_to("acquire", at(0), &mut stored);
    a.lose_reply(at(0), &mut stored);
    let now = a.wake();
    a.serve_up_to("renew", now, &mut stored);
    stored.lease_mut().paused = true;
    a.event(now, &stored);
    assert_eq!(a.role(), Role::Paused);
    a.answer(now, &mut stored);
    a.assert_role(Role::Stopping, Reason::Paused);
}

/// An operator raised the token, so the old document seems to name a successor.
#[test]
fn i8_a_candidate_in_cooldown_does_not_mistake_its_own_raised_claim_for_a_successor() {
    let (mut a, mut stored) = leader("a", at(0));
    a.run(at(2), &mut stored);
    stored.lease_mut().token = token(7);
    let mut raised = stored.lease().clone();
    a.run(at(6), &mut stored);
    raised.revision = stored.lease().revision;
    a.release(at(6), Input::StepDown, &mut stored);
    assert_eq!(stored.lease().holder, None, "released");
    a.input(at(7), Input::Watch(Watch::Changed(raised)));
    a.event(at(8), &stored);
    a.run(at(30) - millis(1), &mut stored);
    assert_eq!(
        a.count("acquire"),
        1,
        "the cooldown lasts one lease duration"
    );
    a.run(at(30), &mut stored);
    assert!(a.leads(at(30)));
}

#[test]
fn i11_a_reply_that_an_event_overtook_is_read_again_before_a_write() {
    let (mut b, stored) = follower_of_vanished();
    b.input(at(1), Input::Watch(Watch::Opened));
    let (read, _) = b.take_call();
    b.event(at(1), &stored);
    b.reply(at(1), read, foreign());
    let again = b.answer_with(at(4), Outcome::Unknown);
    assert_eq!(again, Operation::Read { confirm: false });
    b.run_cut_off(at(60), &Outcome::Unknown);
    assert_eq!(
        b.count("take_over"),
        0,
        "the last document seen may be foreign"
    );
}
