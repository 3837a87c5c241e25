//! A supervised workload runs while its claim leads, and the claim is released only after the
//! workload has ended (I6).

use super::harness::*;
use crate::election::*;

fn gone(number: i64) -> Input {
    Input::WorkloadGone {
        token: token(number),
    }
}

fn terms(valid_until: BootTime) -> Terms {
    Terms {
        valid_until,
        kill_at: valid_until + seconds(3),
    }
}

fn start(number: i64, valid_until: BootTime) -> Order {
    Order {
        token: token(number),
        kind: OrderKind::Start(terms(valid_until)),
    }
}

fn kinds(node: &Node) -> Vec<OrderKind> {
    node.orders.iter().map(|order| order.kind).collect()
}

#[test]
fn it_starts_with_the_acknowledged_acquisition_and_never_before() {
    let mut stored = Stored::default();
    let mut a = Node::begin(supervising("a"), at(0));
    a.serve_up_to("acquire", at(0), &mut stored);
    assert_eq!(a.waiting(), ["acquire"]);
    assert_eq!(a.orders, []);
    a.serve(at(2), &mut stored);
    assert_eq!(
        a.orders,
        [start(1, at(18))],
        "authority counts from when the acquisition was sent"
    );
}

#[test]
fn each_renewal_carries_its_deadline_on_also_while_it_ends() {
    let (mut a, mut stored) = supervisor("a");
    a.orders.clear();
    a.run(at(3), &mut stored);
    assert_eq!(kinds(&a), [OrderKind::Extend(terms(at(21)))]);
    a.demote(at(4), Input::StepDown);
    a.orders.clear();
    a.run(at(60), &mut stored);
    assert_eq!(a.role(), Role::Stopping);
    assert_eq!(
        a.orders.len(),
        19,
        "one order every three seconds: {:?}",
        a.orders
    );
    assert_eq!(a.count("release"), 0, "longer than a lease");
    a.input(at(60), gone(1));
    a.serve(at(60), &mut stored);
    assert_eq!(stored.lease().holder, None);
    assert_eq!(stored.history[0].reason, Reason::Requested);
}

#[test]
fn i6_nothing_is_released_before_it_is_gone() {
    for input in [
        Input::StepDown,
        Input::Shutdown,
        Input::Health { healthy: false },
    ] {
        let (mut a, mut stored) = supervisor("a");
        a.demote(at(1), input);
        assert_eq!(kinds(&a).last(), Some(&OrderKind::Stop));
        a.run(at(100), &mut stored);
        assert_eq!(a.count("release"), 0);
        // Neither a confirmation over HTTP nor the end of another token's workload permits the
        // release.
        a.input(at(100), Input::WorkloadDone { token: token(1) });
        a.input(at(100), gone(7));
        a.run(at(101), &mut stored);
        assert_eq!(a.count("release"), 0);
        a.input(at(101), gone(1));
        a.serve(at(101), &mut stored);
        assert_eq!(stored.lease().holder, None);
    }
}

#[test]
fn i6_a_claim_that_was_lost_is_taken_over_when_its_workload_is_gone() {
    let (mut a, mut stored) = supervisor("a");
    a.run_cut_off(at(30), &Outcome::Unknown);
    assert_eq!(a.role(), Role::Unknown);
    assert_eq!(kinds(&a).last(), Some(&OrderKind::Lost { kill_at: at(21) }));
    a.run(at(31), &mut stored);
    assert_eq!((a.count("release"), a.count("take_over")), (0, 0));
    assert_eq!(a.role(), Role::Follower);
    a.input(at(31), gone(1));
    a.serve(at(31), &mut stored);
    assert_eq!((a.count("release"), a.count("take_over")), (0, 1));
    assert_eq!(a.token(), token(2));
    assert_eq!(a.orders.last(), Some(&start(2, a.valid_until())));
}

#[test]
fn after_a_rejection_it_has_its_grace_from_now_and_no_more() {
    let (mut a, mut stored) = supervisor("a");
    stored.vacate();
    a.run(at(4), &mut stored);
    assert_eq!(a.reason(), Some(Reason::Rejected));
    assert_eq!(kinds(&a).last(), Some(&OrderKind::Lost { kill_at: at(6) }));
    a.run(at(20), &mut stored);
    assert_eq!(a.count("acquire"), 1, "the workload may still run");
    a.input(at(20), gone(1));
    a.serve(at(20), &mut stored);
    assert_eq!(a.token(), token(2));
}

#[test]
fn a_shutdown_waits_for_it() {
    let (mut a, mut stored) = supervisor("a");
    a.run_cut_off(at(19), &Outcome::Failed);
    a.input(at(19), Input::Shutdown);
    a.run(at(60), &mut stored);
    assert!(!a.exited);
    a.input(at(60), gone(1));
    a.serve(at(60), &mut stored);
    assert!(a.exited);
    assert_eq!(stored.lease().holder, None);
}

fn stuck(number: i64) -> Input {
    Input::WorkloadStuck {
        token: token(number),
    }
}

#[test]
fn i10_a_workload_that_survives_its_kill_costs_the_lease_and_no_release() {
    let (mut a, mut stored) = supervisor("a");
    a.demote(at(1), Input::StepDown);
    a.run(at(40), &mut stored);
    assert_eq!(a.role(), Role::Stopping);
    let renewals = a.count("renew");
    a.input(at(40), stuck(1));
    a.assert_role(Role::Follower, Reason::WorkloadStuck);
    assert!(matches!(
        a.notices.last(),
        Some(Notice::WorkloadStuck { wait, .. }) if *wait <= seconds(24) && *wait >= seconds(20)
    ));
    a.run(at(100), &mut stored);
    assert_eq!((a.count("renew"), a.count("release")), (renewals, 0));
    assert_eq!(a.count("take_over") + a.count("acquire"), 1, "it contends");
    // Later the workload's end is confirmed, so the claim may be released or taken over.
    a.input(at(100), gone(1));
    a.run(at(130), &mut stored);
    assert!(a.leads(at(130)));
    assert_eq!(stored.history[0].reason, Reason::WorkloadStuck);
}

#[test]
fn i1_no_leadership_begins_while_a_file_that_hangs_names_the_lost_one() {
    let (mut a, mut stored) = supervisor("a");
    a.input(at(1), Input::WorkloadEnded { token: token(1) });
    a.input(at(1), FILES_STUCK);
    a.run(at(2), &mut stored);
    a.input(at(2), stuck(1));
    a.input(at(3), gone(1));
    // The write of the file hangs, so the file still names the lost claim, and its readers trust it
    // until 18 s.
    a.run(at(18) - millis(1), &mut stored);
    assert_eq!(a.times_leader(), 1);
    a.run(at(30), &mut stored);
    assert_eq!((a.leads(at(30)), a.token()), (true, token(2)));
}

#[test]
fn i10_a_shutdown_leaves_a_workload_that_survives_its_kill() {
    for lost in [false, true] {
        let (mut a, mut stored) = supervisor("a");
        if lost {
            a.run_cut_off(at(19), &Outcome::Failed);
        }
        a.input(at(19), Input::Shutdown);
        a.run(at(60), &mut stored);
        assert!(!a.exited);
        a.input(at(60), stuck(1));
        a.serve(at(60), &mut stored);
        assert!(a.exited, "a exits; leadership lost before: {lost}");
        assert_eq!(a.count("release"), 0);
        assert!(stored.lease().holder.is_some());
    }
}

#[test]
fn its_own_end_gives_the_lease_to_others_first() {
    let (mut a, mut stored) = supervisor("a");
    a.input(at(1), Input::WorkloadEnded { token: token(1) });
    a.assert_role(Role::Stopping, Reason::WorkloadExit);
    a.input(at(1), FILES_DEMOTED);
    a.input(at(1), gone(1));
    a.serve(at(1), &mut stored);
    assert_eq!(stored.history[0].reason, Reason::WorkloadExit);
    assert_eq!(stored.lease().holder, None);
    // There is no other candidate, so `a` leads again.
    a.sends_nth(2, "acquire", at(2), &mut stored);
}

#[test]
fn quick_exits_are_tried_again_ever_more_seldom_and_a_long_life_starts_anew() {
    let (mut a, mut stored) = supervisor("a");
    let mut waits = Vec::new();
    let mut now = at(0);
    for number in 1..=7 {
        now = now + millis(100);
        a.run(now, &mut stored);
        a.input(now, gone(number));
        a.demoted(now, &mut stored);
        let ended = now;
        while !a.leads(now) {
            now = now + millis(100);
            a.run(now, &mut stored);
        }
        waits.push(now.since(ended).as_secs());
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 24, 24]);
    let later = now + seconds(24);
    a.run(later, &mut stored);
    a.input(later, gone(8));
    a.input(later, FILES_DEMOTED);
    a.run(later + seconds(1), &mut stored);
    assert!(a.leads(later + seconds(1)));
}

#[test]
fn a_step_down_does_not_shorten_the_wait_after_its_end() {
    let (mut a, mut stored) = supervisor("a");
    let mut b = follower("b", at(0), &mut stored);
    a.input(at(1), Input::WorkloadEnded { token: token(1) });
    a.demote(at(1), Input::StepDown);
    a.input(at(1), gone(1));
    a.serve(at(1), &mut stored);
    // Another leader ends the wait after a step-down, but not the one after the end.
    b.observe(at(1), &mut stored);
    a.event(at(1), &stored);
    let later = at(1) + millis(1);
    b.release(later, Input::Shutdown, &mut stored);
    a.event(later, &stored);
    a.run(at(2) - millis(1), &mut stored);
    assert_eq!(a.role(), Role::Follower);
    a.run(at(2), &mut stored);
    assert!(a.leads(at(2)));
}

#[test]
fn another_workload_s_words_mean_nothing() {
    let (mut a, mut stored) = supervisor("a");
    a.input(at(1), Input::WorkloadEnded { token: token(7) });
    a.input(at(1), gone(7));
    a.run(at(2), &mut stored);
    assert!(a.leads(at(2)));
}
