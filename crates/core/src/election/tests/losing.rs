//! The two ways in which leadership ends (step-down and loss), and the rule that a claim leads at
//! most once (I1, I6).

use super::harness::*;
use crate::election::*;

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
        | Operation::Register { .. }
        | Operation::Withdraw { .. }
        | Operation::Read { .. } => true,
    })
}

/// Returns settings with this handoff delay, for a workload that stops before the daemon.
fn ends_first(delay: std::time::Duration) -> Tunables {
    Tunables {
        workload_ends_first: true,
        ..with_handoff(delay)
    }
}

#[test]
fn a_graceful_stop_says_so_first_and_renews_while_the_workload_drains() {
    let (mut a, mut stored) = leader_with("a", at(0), with_handoff(seconds(10)));
    a.input(at(1), Input::Shutdown);
    assert_eq!((a.role(), a.demotions_asked), (Role::Stopping, 1));
    assert!(!a.leads(at(1)));
    a.input(at(1), FILES_DEMOTED);
    a.run(at(10), &mut stored);
    assert_eq!(a.count("release"), 0);
    // No other candidate may take over while the workload drains.
    assert!(a.count("renew") >= 3);
    a.run(at(11), &mut stored);
    assert_eq!(a.count("release"), 1);
    assert!(a.exited && no_renewal_after_release(&a));
    assert_eq!(stored.history[0].reason, Reason::Shutdown);
    assert_eq!(stored.lease().holder, None);
}

#[test]
fn i6_the_release_waits_for_the_workloads_confirmation_under_its_own_token() {
    let (mut a, mut stored) = leader_with("a", at(0), with_handoff(seconds(600)));
    a.demote(at(1), Input::StepDown);
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
    a.input(at(1), FILES_DEMOTED);
    assert_eq!(a.waiting(), ["release"]);
}

#[test]
fn a_file_that_cannot_be_rewritten_holds_the_release_back_to_its_deadline() {
    let (mut a, mut stored) = leader("a", at(0));
    a.run(at(3), &mut stored);
    a.input(at(4), Input::StepDown);
    a.input(at(4), FILES_STUCK);
    // A reader trusts the stuck file until 21 s.
    a.sends_nth(1, "release", at(21), &mut stored);
}

#[test]
fn a_file_thread_that_does_not_answer_counts_as_stuck() {
    let (mut a, mut stored) = leader("a", at(0));
    a.input(at(1), Input::Shutdown);
    a.run(at(2), &mut stored);
    assert_eq!((a.count("release"), a.exited), (0, true));
    assert_eq!(a.notices, [Notice::LeftToExpire]);
    assert!(a.election.is_left_to_expire());
    // The lease expires by itself.
    assert!(stored.lease().holder.is_some());
}

#[test]
fn an_exit_is_released_once_the_release_is_acknowledged() {
    let (mut a, mut stored) = leader("a", at(0));
    let mut unanswered = (a.clone(), stored.clone());
    a.demote(at(1), Input::Shutdown);
    assert!(!a.exited);
    a.serve(at(1), &mut stored);
    assert!(a.exited && !a.election.is_left_to_expire());

    // The release is applied, and its reply is lost.
    let (b, stored) = (&mut unanswered.0, &mut unanswered.1);
    b.demote(at(1), Input::Shutdown);
    b.lose_reply(at(4), stored);
    b.run_cut_off(at(8), &Outcome::Unknown);
    assert!(b.exited && b.election.is_left_to_expire());
}

#[test]
fn an_exit_after_a_rejected_release_leaves_nothing_to_expire() {
    let (mut a, _) = leader("a", at(0));
    a.demote(at(1), Input::Shutdown);
    a.answer_with(at(1), Outcome::Rejected);
    a.run_cut_off(at(8), &Outcome::Unknown);
    assert!(a.exited && !a.election.is_left_to_expire());
}

#[test]
fn an_exit_with_an_unanswered_acquisition_may_leave_the_lease_held() {
    for (outcome, left) in [(Outcome::Unknown, true), (Outcome::Failed, false)] {
        let (mut b, _) = acquiring();
        b.input(at(1), Input::Shutdown);
        b.run_cut_off(at(9), &outcome);
        assert_eq!((b.exited, b.election.is_left_to_expire()), (true, left));
    }
}

#[test]
fn i6_a_workload_that_ends_first_shortens_the_wait_at_a_shutdown_to_a_second() {
    let (mut a, mut stored) = leader_with("a", at(0), ends_first(seconds(30)));
    let mut asked_twice = a.clone();
    a.demote(at(1), Input::Shutdown);
    a.run(at(2) - millis(1), &mut stored);
    assert_eq!(
        a.count("release"),
        0,
        "a kubelet may restart only the sidecar"
    );
    let mut confirmed = (a.clone(), stored.clone());
    a.run(at(2), &mut stored);
    assert!(a.exited && a.count("release") == 1);

    let (b, stored) = (&mut confirmed.0, &mut confirmed.1);
    b.input(at(2) - millis(1), Input::WorkloadDone { token: token(1) });
    b.serve(at(2) - millis(1), stored);
    assert!(b.exited && stored.lease().holder.is_none());

    // After a request to step down, the candidate waits for the handoff delay. The shutdown
    // shortens this wait.
    let b = &mut asked_twice;
    b.demote(at(1), Input::StepDown);
    b.input(at(5), Input::Shutdown);
    assert_eq!(b.waiting(), ["renew"]);
    b.tick(at(6));
    assert_eq!(b.count("release"), 1);
}

/// Returns a leader with this handoff delay that lost its lease at its deadline of 18 s. Its
/// workload is unhealthy, so the lease is left to others.
fn lost_at_18(delay: std::time::Duration) -> (Node, Stored) {
    let (mut a, stored) = leader_with("a", at(0), with_handoff(delay));
    a.run_cut_off(at(18), &Outcome::Unknown);
    assert_eq!(a.reason(), Some(Reason::Deadline));
    a.input(at(18), Input::Health { healthy: false });
    (a, stored)
}

#[test]
fn i6_after_a_loss_by_deadline_the_workload_has_its_time_to_notice() {
    let (mut a, mut stored) = lost_at_18(seconds(2));
    assert_eq!(a.election.status().unnoticed, Some(token(1)));
    a.run(at(20) - millis(1), &mut stored);
    assert!(stored.lease().holder.is_some());
    a.sends_nth(1, "release", at(20), &mut stored);
    assert_eq!(a.election.status().unnoticed, None);
    assert_eq!(stored.lease().holder, None);
}

#[test]
fn i6_a_frozen_daemon_gives_the_workload_its_time_from_when_it_wakes() {
    let (mut a, mut stored) = leader_with("a", at(0), with_handoff(seconds(2)));
    a.input(at(21), Input::Health { healthy: false });
    a.sends_nth(1, "release", at(23), &mut stored);
}

#[test]
fn a_leader_that_wakes_long_after_its_deadline_to_a_shutdown_ends_in_one_turn() {
    let (mut a, _) = leader_with("a", at(0), with_handoff(seconds(2)));
    a.input(at(60), Input::Shutdown);
    assert_eq!((a.exited, a.role()), (true, Role::Stopping));
    assert_eq!(
        a.count("release"),
        0,
        "the lease has expired, so no release is needed"
    );
}

#[test]
fn i6_a_confirmation_after_the_loss_ends_the_wait() {
    let (mut a, mut stored) = lost_at_18(seconds(600));
    a.run(at(19), &mut stored);
    a.input(at(19), Input::WorkloadDone { token: token(7) });
    a.serve(at(19), &mut stored);
    assert_eq!(a.count("release"), 0, "another token's confirmation");
    a.input(at(19), Input::WorkloadDone { token: token(1) });
    a.serve(at(19), &mut stored);
    assert_eq!(stored.lease().holder, None);
}

#[test]
fn i6_a_confirmation_that_comes_with_the_deadline_counts() {
    let (mut a, mut stored) = leader_with("a", at(0), with_handoff(seconds(600)));
    a.input(at(1), Input::Health { healthy: true });
    // The workload noticed the deadline before the daemon did. After the freeze, its confirmation
    // is the daemon's first input.
    a.input(at(18), Input::WorkloadDone { token: token(1) });
    a.input(at(18), Input::Shutdown);
    a.run(at(19), &mut stored);
    assert!(a.exited);
    assert_eq!(stored.lease().holder, None);
}

#[test]
fn i6_a_shutdown_after_a_loss_waits_for_the_workload_for_a_limited_time() {
    let (mut a, mut stored) = lost_at_18(seconds(2));
    a.input(at(19), Input::Shutdown);
    a.run(at(20) - millis(1), &mut stored);
    assert_eq!((a.count("release"), a.exited), (0, false));
    let mut cut_off = a.clone();
    a.run(at(20), &mut stored);
    assert_eq!((a.count("release"), a.exited), (1, true));
    cut_off.run_cut_off(at(23), &Outcome::Unknown);
    assert!(cut_off.exited, "after the wait and one operation timeout");

    let (mut b, mut stored) = leader_with("b", at(0), ends_first(seconds(600)));
    b.run_cut_off(at(18), &Outcome::Unknown);
    b.input(at(19), Input::Shutdown);
    b.sends_nth(1, "release", at(20), &mut stored);
    assert!(b.exited && stored.lease().holder.is_none());
}

#[test]
fn i6_a_loss_during_the_drain_does_not_end_the_wait_for_the_workload() {
    let (mut a, mut stored) = leader_with("a", at(0), with_handoff(seconds(20)));
    a.demote(at(1), Input::Shutdown);
    a.run_cut_off(at(18), &Outcome::Unknown);
    a.run(at(21) - millis(1), &mut stored);
    assert_eq!((a.count("release"), a.exited), (0, false));
    a.run(at(21), &mut stored);
    assert_eq!((a.count("release"), a.exited), (1, true));
}

#[test]
fn i6_an_acquisition_that_does_not_lead_is_released_after_the_wait_too() {
    let (mut a, mut stored) = leader_with("a", at(0), with_handoff(seconds(2)));
    a.run_cut_off(at(18), &Outcome::Unknown);
    a.serve_reads(at(18), &mut stored);
    a.tick(at(19));
    a.serve_reads(at(19), &mut stored);
    assert_eq!(a.waiting(), ["take_over"]);
    let (call, outcome) = a.perform(&mut stored);
    a.input(at(19), Input::Health { healthy: false });
    a.reply(at(19), call, outcome);
    a.run(at(20) - millis(1), &mut stored);
    assert_eq!(a.count("release"), 0);
    a.run(at(21), &mut stored);
    assert_eq!(a.count("release"), 1);
}

#[test]
fn a_workload_that_is_not_supervised_does_not_keep_its_candidate_from_leading_again() {
    let (mut a, mut stored) = leader_with("a", at(0), with_handoff(seconds(600)));
    a.run_cut_off(at(18), &Outcome::Unknown);
    a.run(at(20), &mut stored);
    assert_eq!((a.leads(at(20)), a.token()), (true, token(2)));
}

#[test]
fn i6_the_wait_begins_when_the_file_says_so_or_with_the_deadline_in_it() {
    let (mut a, mut stored) = leader_with("a", at(0), with_handoff(seconds(2)));
    let mut stuck = (a.clone(), stored.clone());
    a.input(at(1), Input::StepDown);
    a.input(at(1) + millis(400), FILES_DEMOTED);
    a.sends_nth(1, "release", at(3) + millis(400), &mut stored);

    let (b, stored) = (&mut stuck.0, &mut stuck.1);
    b.input(at(1), Input::StepDown);
    b.input(at(1), FILES_STUCK);
    // A reader trusts the stuck file until 18 s.
    b.sends_nth(1, "release", at(20), stored);
}

#[test]
fn a_deadline_while_draining_is_a_loss() {
    let (mut a, _) = leader_with("a", at(0), with_handoff(seconds(600)));
    a.demote(at(1), Input::Shutdown);
    a.run_cut_off(at(60), &Outcome::Unknown);
    assert!(a.exited && no_renewal_after_release(&a));
    assert_eq!(a.reason(), Some(Reason::Deadline));
}

#[test]
fn i1_a_claim_that_passed_its_deadline_is_taken_over_never_renewed() {
    let (mut a, mut stored) = leader("a", at(0));
    let first = stored.claim();
    a.run_cut_off(at(30), &Outcome::Failed);
    a.run(at(40), &mut stored);
    assert!(a.leads(at(40)) && no_renewal_after_release(&a));
    let second = stored.claim();
    assert_ne!(first, second);
    assert_eq!(a.token(), token(2));
}

#[test]
fn i1_a_release_that_lands_late_does_not_dethrone_its_own_successor() {
    let (mut a, mut stored) = leader("a", at(0));
    for second in [3, 7, 11, 15] {
        a.tick(at(second));
        while !a.calls.is_empty() {
            a.answer_with(at(second), Outcome::Failed);
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
    stored.vacate();
    a.tick(at(3));
    a.answer(at(3), &mut stored);
    assert_eq!((a.role(), a.leads(at(3))), (Role::Stopping, false));
    assert_eq!(a.answer(at(3), &mut stored).as_str(), "read");
    a.assert_role(Role::Follower, Reason::Rejected);
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
    let (call, outcome) = twin.perform(&mut stored);
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
    assert_eq!(
        twin.count("release"),
        0,
        "a release would depose the other process"
    );
}

#[test]
fn after_two_losses_by_deadline_others_go_first() {
    let (mut a, mut stored) = leader("a", at(0));
    a.run_cut_off(at(20), &Outcome::Failed);
    a.run(at(30), &mut stored);
    assert!(a.leads(at(30)), "the first loss causes no wait");
    let lost_from = a.valid_until();
    a.run_cut_off(at(60), &Outcome::Failed);
    let backing_off = Notice::BackingOff { wait: seconds(24) };
    assert!(a.notices.contains(&backing_off));
    assert_eq!(a.times_leader(), 2);
    a.run(lost_from + seconds(23), &mut stored);
    assert_ne!(a.role(), Role::Leader);
    // Despite the back-off, the candidate leads again within the bound of I10.
    a.run(lost_from + seconds(34), &mut stored);
    assert_eq!(a.role(), Role::Leader);
}

#[test]
fn an_acquisition_that_lands_during_the_shutdown_is_released() {
    let mut stored = Stored::free(token(0));
    let mut a = Node::start("a", at(0));
    a.answer(at(0), &mut stored);
    a.input(at(0), Input::Shutdown);
    assert!(!a.exited);
    a.serve(at(0), &mut stored);
    assert!(a.exited);
    assert_eq!(stored.lease().holder, None);
    assert_eq!(a.times_leader(), 0);
}

#[test]
fn a_shutdown_ends_in_bounded_time_with_a_store_that_never_answers() {
    let (mut a, _) = leader("a", at(0));
    a.demote(at(1), Input::Shutdown);
    assert_eq!(a.waiting(), ["release"]);
    while let Some(next) = a.election.next_wakeup() {
        assert!(next <= at(1) + seconds(4));
        a.tick(next);
    }
    assert!(a.exited);
}

#[test]
fn an_unresponsive_store_after_a_loss_is_not_counted_as_another_loss() {
    let (mut a, mut stored) = leader("a", at(0));
    a.run_cut_off(at(100), &Outcome::Failed);
    a.run(at(200), &mut stored);
    assert!(a.leads(at(200)) && a.transitions.iter().any(|t| t.to == Role::Unknown));
    let reasons = a.transitions.iter().map(|t| t.reason);
    let by_deadline = reasons.filter(|reason| *reason == Some(Reason::Deadline));
    assert_eq!(by_deadline.count(), 1, "{:?}", a.transitions);
}

#[test]
fn i6_a_file_that_is_reported_stuck_twice_is_still_stuck() {
    let (mut a, mut stored) = leader("a", at(0));
    a.input(at(1), Input::StepDown);
    a.input(at(1), FILES_STUCK);
    a.input(at(2), FILES_STUCK);
    a.run(at(18) - millis(1), &mut stored);
    assert_eq!(a.count("release"), 0, "a reader trusts the file until 18 s");
}

#[test]
fn i6_an_exiting_process_does_not_release_before_readers_of_a_stuck_file_have_noticed() {
    let (mut a, mut stored) = leader_with("a", at(0), with_handoff(seconds(20)));
    a.input(at(1), Input::Shutdown);
    a.input(at(1), FILES_STUCK);
    // The deadline in the file passes at 18 s, and its readers notice by 38 s.
    a.run(at(21), &mut stored);
    assert_eq!((a.count("release"), a.exited), (0, true));
    assert_eq!(a.notices, [Notice::LeftToExpire]);
}

/// Returns a leader that steps down. Its files say "not leader", but its label says "leader".
fn labelled() -> (Node, Stored) {
    let (mut a, stored) = leader("a", at(0));
    a.input(at(1), Input::StepDown);
    a.input(
        at(1) + millis(5),
        Input::Demoted {
            shown: true,
            label_pending: true,
        },
    );
    (a, stored)
}

#[test]
fn a_release_waits_for_the_label() {
    let (mut a, mut stored) = labelled();
    a.run(at(1) + millis(200), &mut stored);
    assert_eq!(a.count("release"), 0);
    a.input(at(1) + millis(200), Input::LabelDemoted);
    assert_eq!(a.waiting(), ["release"]);
}

#[test]
fn a_label_that_is_not_changed_in_time_delays_a_release_and_does_not_prevent_it() {
    let (mut a, mut stored) = labelled();
    a.sends_nth(1, "release", at(1) + millis(500), &mut stored);
    assert_eq!(a.notices, [], "the files are not stuck");
}

/// The files were demoted in time, so they are not stuck.
#[test]
fn a_shutdown_releases_in_spite_of_a_label_that_is_never_changed() {
    let (mut a, mut stored) = labelled();
    a.input(at(1) + millis(10), Input::Shutdown);
    a.tick(at(3));
    a.serve(at(3), &mut stored);
    assert_eq!((stored.lease().holder.as_ref(), a.exited), (None, true));
    assert_eq!(a.notices, []);
}
