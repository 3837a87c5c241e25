//! Replies that arrive late, in an unexpected order.

use super::harness::*;
use crate::election::*;

#[test]
fn i10_the_late_reply_of_an_acquisition_during_its_adoption_leaves_nothing_undone() {
    let mut stored = Stored::default();
    let mut a = Node::start("a", at(0));
    // The read, then the create.
    let (c, op) = a.take_call();
    let o = stored.apply(&a.identity, &op);
    a.reply(at(0), c, o);
    let (c, op) = a.take_call();
    let o = stored.apply(&a.identity, &op);
    a.input(at(0), Input::Watch(Watch::Opened));
    a.reply(at(0), c, o);
    // Answer calls until the acquire is found.
    let mut acquire = None;
    for _ in 0..10 {
        let Some((c, op)) = a.calls.pop_front() else {
            break;
        };
        let o = stored.apply(&a.identity, &op);
        if op.as_str() == "acquire" {
            acquire = Some((c, o));
        } else {
            a.reply(at(0), c, o);
        }
    }
    let (acq, late) = acquire.expect("acquire");
    assert!(matches!(late, Outcome::Applied(_)));
    // The timeout makes the outcome unknown.
    a.reply(at(3), acq, Outcome::Unknown);
    let w = a.election.next_wakeup().unwrap();
    a.tick(w);
    let (c, op) = a.take_call();
    assert_eq!(op.as_str(), "read");
    let o = stored.apply(&a.identity, &op);
    a.reply(w, c, o);
    let (adopt, op) = a.take_call();
    assert_eq!(op.as_str(), "renew");
    let o = stored.apply(&a.identity, &op);
    // The acquire's own reply finally arrives.
    a.reply(w, acq, late);
    a.reply(w, adopt, o);
    assert_eq!(a.role(), Role::Leader);
    a.calls.clear(); // the read in flight: its reply has no effect (reading = None)
    a.run(at(60), &mut stored);
    assert_eq!(a.role(), Role::Leader);
    let n = a.election.status_time();
    a.input(n, Input::StepDown);
    a.input(n, Input::Demoted { shown: true });
    a.serve(n, &mut stored);
    // No other candidate exists, so this one must lead again after one lease duration.
    a.run(n + seconds(600), &mut stored);
    assert_eq!(a.role(), Role::Leader, "stuck for ever");
}

#[test]
fn a_requested_step_down_that_meets_its_deadline_stays_out() {
    let t = Tunables {
        handoff_delay: seconds(2),
        ..tunables()
    };
    let (mut a, mut stored) = leader_with("a", at(0), t);
    a.run_cut_off(at(17), &Outcome::Failed);
    a.input(at(17), Input::StepDown);
    a.input(at(17), Input::Demoted { shown: true });
    assert_eq!(a.role(), Role::Stopping);
    a.run_cut_off(at(20), &Outcome::Failed);
    a.run(at(24), &mut stored);
    assert_ne!(
        a.role(),
        Role::Leader,
        "told to step down and stay out at 17 s, leads again at once"
    );
}

#[test]
fn files_that_are_demoted_late_do_not_hold_the_release_back() {
    let (mut b, mut stored) = leader("b", at(0));
    b.run(at(4), &mut stored);
    b.input(at(4), Input::StepDown);
    b.tick(at(4) + millis(500));
    b.input(at(4) + millis(600), Input::Demoted { shown: true });
    b.serve(at(4) + millis(600), &mut stored);
    b.run(at(6), &mut stored);
    assert_ne!(b.role(), Role::Stopping, "files were demoted at 600 ms");
}

#[test]
fn a_read_answered_before_the_release_is_forgotten() {
    let (mut a, mut stored) = leader("a", at(0));
    a.run(at(2), &mut stored);
    a.input(at(2), Input::Watch(Watch::Unclear));
    let (read, op) = a.take_call();
    let old = stored.apply(&a.identity, &op);
    a.input(at(2), Input::StepDown);
    a.input(at(2), Input::Demoted { shown: true });
    a.serve(at(2), &mut stored);
    a.reply(at(2), read, old);
    a.serve(at(2), &mut stored);
    // The candidate stays out for 24 s, until 26 s, and should lead after that.
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
    let foreign = Found::Foreign("newer".to_owned());
    a.reply(at(10), read, Outcome::Applied(foreign));
    assert_eq!(a.role(), Role::Leader);
}

#[test]
fn i11_after_a_foreign_document_in_a_late_answer_a_contender_reads_before_it_writes() {
    let (_, mut stored) = leader("a", at(0));
    let mut b = Node::start("b", at(1));
    let (old, _) = b.take_call();
    b.reply(at(4), old, Outcome::Unknown);
    b.run(at(8), &mut stored);
    let foreign = Found::Foreign("somebody else's".to_owned());
    b.reply(at(8), old, Outcome::Applied(foreign));
    let (_, next) = b.take_call();
    assert_eq!(next, Operation::Read { confirm: false });
}

#[test]
fn an_adoption_that_meets_a_pause_steps_down_for_it() {
    let mut stored = Stored::default();
    let mut a = Node::start("a", at(0));
    // The acquisition lands, its reply is lost, and a read finds it.
    let (adopt, renewal) = loop {
        let Some((call, operation)) = a.calls.pop_front() else {
            a.tick(a.election.next_wakeup().unwrap());
            continue;
        };
        if operation.as_str() == "renew" {
            break (call, operation);
        }
        let lost = operation.as_str() == "acquire";
        let outcome = stored.apply(&a.identity, &operation);
        let outcome = if lost { Outcome::Unknown } else { outcome };
        a.reply(a.election.status_time(), call, outcome);
    };
    let now = a.election.status_time();
    stored.lease_mut().paused = true;
    a.event(now, &stored);
    assert_eq!(a.role(), Role::Paused);
    let outcome = stored.apply(&a.identity, &renewal);
    a.reply(now, adopt, outcome);
    assert_eq!(a.role(), Role::Stopping);
    assert_eq!(a.reason(), Some(Reason::Paused));
}

/// An operator raised the token, so that the old document looks like a successor's.
#[test]
fn i8_who_stays_out_takes_its_own_raised_claim_for_no_successor() {
    let (mut a, mut stored) = leader("a", at(0));
    a.run(at(2), &mut stored);
    stored.lease_mut().token = token(7);
    let mut raised = stored.lease().clone();
    a.run(at(6), &mut stored);
    raised.revision = stored.lease().revision;
    a.input(at(6), Input::StepDown);
    a.input(at(6), Input::Demoted { shown: true });
    a.serve(at(6), &mut stored);
    assert_eq!(stored.lease().holder, None, "released");
    a.input(at(7), Input::Watch(Watch::Changed(raised)));
    a.event(at(8), &stored);
    a.run(at(30) - millis(1), &mut stored);
    assert_eq!(a.count("acquire"), 1, "within a lease duration");
    a.run(at(30), &mut stored);
    assert!(a.leads(at(30)));
}

#[test]
fn i11_a_reply_that_an_event_overtook_is_read_again_before_a_write() {
    let (_, mut stored) = leader("a", at(0));
    let mut b = follower("b", at(0), &mut stored);
    b.input(at(1), Input::Watch(Watch::Opened));
    let (read, _) = b.take_call();
    b.event(at(1), &stored);
    let foreign = Found::Foreign("somebody else's".to_owned());
    b.reply(at(1), read, Outcome::Applied(foreign));
    let (again, operation) = b.take_call();
    assert_eq!(operation, Operation::Read { confirm: false });
    b.reply(at(4), again, Outcome::Unknown);
    b.run_cut_off(at(60), &Outcome::Unknown);
    assert_eq!(b.count("take_over"), 0, "what it saw last may be foreign");
}
