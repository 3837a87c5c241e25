//! The two ways of losing leadership, and that a claim leads at most once (I1, I6).

use super::harness::*;
use crate::election::*;

fn with_handoff(delay: std::time::Duration) -> Tunables {
    Tunables {
        handoff_delay: delay,
        ..tunables()
    }
}

/// No renewal of a claim after its release was sent.
fn no_renewal_after_release(node: &Node) -> bool {
    let mut released = Vec::new();
    node.sent.iter().all(|operation| match operation {
        Operation::Release { claim, .. } => {
            released.push(*claim);
            true
        }
        Operation::Renew { claim, .. } => !released.contains(claim),
        Operation::Create { .. }
        | Operation::Acquire(_)
        | Operation::TakeOver { .. }
        | Operation::Read { .. } => true,
    })
}

#[test]
fn a_graceful_stop_says_so_first_and_renews_while_the_workload_drains() {
    let (mut a, mut stored) = leader_with("a", at(0), with_handoff(seconds(10)));
    a.input(at(1), Input::Shutdown);
    assert_eq!(
        (a.role(), a.leads(at(1)), a.demotions_asked),
        (Role::Stopping, false, 1)
    );
    a.input(at(1), Input::Demoted { shown: true });
    a.run(at(10), &mut stored);
    assert_eq!(a.count("release"), 0);
    assert!(
        a.count("renew") >= 3,
        "nobody may take over while it drains"
    );
    a.run(at(11), &mut stored);
    assert_eq!(a.count("release"), 1);
    assert!(a.exited && no_renewal_after_release(&a));
    assert_eq!(stored.history[0].reason, Reason::Shutdown);
    assert_eq!(stored.lease().holder, None);
}

#[test]
fn i6_the_release_waits_for_the_workloads_confirmation_under_its_own_token() {
    let (mut a, mut stored) = leader_with("a", at(0), with_handoff(seconds(600)));
    a.input(at(1), Input::StepDown);
    a.input(at(1), Input::Demoted { shown: true });
    a.input(at(2), Input::WorkloadDone { token: token(7) });
    a.run(at(20), &mut stored);
    assert_eq!(a.count("release"), 0, "another token's confirmation");
    a.input(at(20) + millis(1), Input::WorkloadDone { token: token(1) });
    assert_eq!(a.waiting(), ["release"]);
}

#[test]
fn i6_no_release_before_the_files_say_not_leader() {
    let (mut a, _) = leader("a", at(0));
    a.input(at(1), Input::StepDown);
    assert_eq!(a.waiting(), Vec::<&str>::new());
    a.input(at(1), Input::Demoted { shown: true });
    assert_eq!(a.waiting(), ["release"]);
}

#[test]
fn a_file_that_cannot_be_rewritten_holds_the_release_back_to_its_deadline() {
    let (mut a, mut stored) = leader("a", at(0));
    a.run(at(3), &mut stored);
    a.input(at(4), Input::StepDown);
    a.input(at(4), Input::Demoted { shown: false });
    a.run(at(21) - millis(1), &mut stored);
    assert_eq!(
        a.count("release"),
        0,
        "a reader of the file believes it until 21 s"
    );
    a.run(at(21), &mut stored);
    assert_eq!(a.count("release"), 1);
}

#[test]
fn a_file_thread_that_does_not_answer_counts_as_stuck() {
    let (mut a, mut stored) = leader("a", at(0));
    a.input(at(1), Input::Shutdown);
    a.run(at(2), &mut stored);
    assert_eq!((a.count("release"), a.exited), (0, true));
    assert_eq!(a.notices, [Notice::LeftToExpire]);
    assert!(
        stored.lease().holder.is_some(),
        "the lease expires by itself"
    );
}

#[test]
fn a_workload_that_ends_first_is_not_waited_for_at_shutdown() {
    let tunables = Tunables {
        workload_ends_first: true,
        ..with_handoff(seconds(30))
    };
    let (mut a, mut stored) = leader_with("a", at(0), tunables);
    a.input(at(1), Input::Shutdown);
    a.input(at(1), Input::Demoted { shown: true });
    a.serve(at(1), &mut stored);
    assert!(a.exited);
}

#[test]
fn a_deadline_while_draining_is_a_loss() {
    let (mut a, _) = leader_with("a", at(0), with_handoff(seconds(600)));
    a.input(at(1), Input::Shutdown);
    a.input(at(1), Input::Demoted { shown: true });
    a.run_cut_off(at(60), &Outcome::Unknown);
    assert!(a.exited && no_renewal_after_release(&a));
    assert_eq!(a.reason(), Some(Reason::Deadline));
}

#[test]
fn i1_a_claim_that_passed_its_deadline_is_taken_over_never_renewed() {
    let (mut a, mut stored) = leader("a", at(0));
    let first = stored.lease().holder.as_ref().expect("held").claim;
    a.run_cut_off(at(30), &Outcome::Failed);
    a.run(at(40), &mut stored);
    assert!(a.leads(at(40)) && no_renewal_after_release(&a));
    let second = stored.lease().holder.as_ref().expect("held").claim;
    assert_ne!(first, second);
    assert_eq!(a.token(), token(2));
}

#[test]
fn i1_a_release_that_lands_late_does_not_dethrone_its_own_successor() {
    let (mut a, mut stored) = leader("a", at(0));
    for second in [3, 7, 11, 15] {
        a.tick(at(second));
        while let Some((call, _)) = a.calls.pop_front() {
            a.reply(at(second), call, Outcome::Failed);
        }
    }
    a.tick(at(18));
    let (release, late) = a.calls.pop_back().expect("the release was sent");
    assert_eq!(late.as_str(), "release");
    a.reply(at(21), release, Outcome::Unknown);
    a.run(at(30), &mut stored);
    assert_eq!(a.token(), token(2));
    assert_eq!(stored.apply(&a.identity, &late), Outcome::Rejected);
    a.run(at(60), &mut stored);
    assert_eq!((a.leads(at(60)), a.token()), (true, token(2)));
}

#[test]
fn a_rejected_leader_steps_down_at_once_and_reads_why() {
    let (mut a, mut stored) = leader("a", at(0));
    stored.lease_mut().holder = None;
    stored.lease_mut().revision = Revision::from_bytes([77; 16]);
    a.tick(at(3));
    let (call, operation) = a.take_call();
    let outcome = stored.apply(&a.identity, &operation);
    a.reply(at(3), call, outcome);
    assert_eq!((a.role(), a.leads(at(3))), (Role::Stopping, false));
    assert_eq!(a.waiting(), ["read"]);
    let (call, operation) = a.take_call();
    let outcome = stored.apply(&a.identity, &operation);
    a.reply(at(3), call, outcome);
    assert_eq!(
        (a.role(), a.reason()),
        (Role::Follower, Some(Reason::Rejected))
    );
    assert_eq!(a.count("release"), 0);
}

#[test]
fn a_forked_twin_ends_in_one_leader_within_a_renew_interval() {
    let (mut a, mut stored) = leader("a", at(0));
    let mut twin = a.clone();
    twin.reseed();
    a.tick(at(3));
    a.serve(at(3), &mut stored);
    twin.input(at(4), Input::PrimaryChanged);
    let (call, operation) = twin.take_call();
    let outcome = stored.apply(&a.identity, &operation);
    assert_eq!(outcome, Outcome::Rejected);
    let session = twin.election.status().session;
    twin.reply(at(4), call, outcome);
    twin.serve(at(4), &mut stored);
    assert!(a.leads(at(4)) && !twin.leads(at(4)));
    assert_eq!(twin.reason(), Some(Reason::Duplicate));
    assert_ne!(twin.election.status().session, session);
    twin.open_stream(at(4), &mut stored);
    for second in 5..60 {
        a.run(at(second), &mut stored);
        twin.event(at(second), &stored);
        twin.run(at(second), &mut stored);
        assert!(a.leads(at(second)) && !twin.leads(at(second)));
    }
    assert_eq!(twin.count("release"), 0, "it must not dethrone its twin");
}

#[test]
fn after_two_losses_by_deadline_others_go_first() {
    let (mut a, mut stored) = leader("a", at(0));
    a.run_cut_off(at(20), &Outcome::Failed);
    a.run(at(30), &mut stored);
    assert!(a.leads(at(30)), "the first loss costs nothing more");
    let lost_from = a.valid_until();
    a.run_cut_off(at(60), &Outcome::Failed);
    assert!(
        a.notices
            .contains(&Notice::BackingOff { wait: seconds(24) })
    );
    let lost_at = a
        .transitions
        .iter()
        .filter(|t| t.to == Role::Leader)
        .count();
    assert_eq!(lost_at, 2);
    a.run(lost_from + seconds(23), &mut stored);
    assert_ne!(a.role(), Role::Leader);
    a.run(lost_from + seconds(34), &mut stored);
    assert_eq!(
        a.role(),
        Role::Leader,
        "I10: within the declared duration all the same"
    );
}

#[test]
fn an_acquisition_that_lands_during_the_shutdown_is_released() {
    let mut stored = Stored {
        document: Some(free(Revision::from_bytes([9; 16]), token(0))),
        ..Default::default()
    };
    let mut a = Node::start("a", at(0));
    let (read, operation) = a.take_call();
    let outcome = stored.apply(&a.identity, &operation);
    a.reply(at(0), read, outcome);
    a.input(at(0), Input::Shutdown);
    assert!(!a.exited);
    a.serve(at(0), &mut stored);
    assert!(a.exited);
    assert_eq!(stored.lease().holder, None);
    assert!(a.transitions.iter().all(|t| t.to != Role::Leader));
}

#[test]
fn a_shutdown_ends_in_bounded_time_with_a_store_that_never_answers() {
    let (mut a, _) = leader("a", at(0));
    a.input(at(1), Input::Shutdown);
    a.input(at(1), Input::Demoted { shown: true });
    assert_eq!(a.waiting(), ["release"]);
    while let Some(next) = a.election.next_wakeup() {
        assert!(next <= at(1) + seconds(4));
        a.tick(next);
    }
    assert!(a.exited);
}

#[test]
fn a_store_that_is_silent_after_a_loss_is_not_counted_as_another_loss() {
    let (mut a, mut stored) = leader("a", at(0));
    a.run_cut_off(at(100), &Outcome::Failed);
    a.run(at(200), &mut stored);
    let became = |role| a.transitions.iter().any(|t| t.to == role);
    assert!(became(Role::Unknown) && a.leads(at(200)));
    let by_deadline = a
        .transitions
        .iter()
        .filter(|t| t.reason == Some(Reason::Deadline));
    assert_eq!(by_deadline.count(), 1, "{:?}", a.transitions);
}

#[test]
fn i6_a_file_that_is_reported_stuck_twice_is_still_stuck() {
    let (mut a, mut stored) = leader("a", at(0));
    a.input(at(1), Input::StepDown);
    a.input(at(1), Input::Demoted { shown: false });
    a.input(at(2), Input::Demoted { shown: false });
    a.run(at(18) - millis(1), &mut stored);
    assert_eq!(a.count("release"), 0, "a reader believes it until 18 s");
}
