//! A witness: the next process that uses the status directory of an exited leader. It releases the
//! leader's claim, and never leads (I1, I6).

use super::harness::*;
use crate::election::*;

/// Returns an exited leader, a witness that has sent its first read, and the store.
fn witnessed(tunables: Tunables) -> (Node, Node, Stored) {
    let (exited, stored) = leader_with("a", at(0), tunables);
    let witness = witness_of(&exited, at(1), tunables);
    (exited, witness, stored)
}

fn witness_of(exited: &Node, now: BootTime, tunables: Tunables) -> Node {
    let mut witness = exited.successor_with(now, tunables);
    witness.input(now, Input::Shutdown);
    witness
}

fn recorded(node: &Node) -> Option<Claim> {
    node.remembered.last().and_then(|(claim, _, _)| *claim)
}

#[test]
fn a_witness_releases_the_claim_of_the_exited_leader_and_never_leads() {
    let (exited, mut witness, mut stored) = witnessed(tunables());
    assert!(recorded(&exited).is_some());
    witness.run(at(60), &mut stored);
    assert_eq!(stored.lease().holder, None);
    assert_eq!(stored.history[0].reason, Reason::Died);
    assert_eq!(stored.history[0].token, token(1));
    assert_eq!(witness.sent_after(0), ["read", "release"]);
    assert_eq!((witness.exited, witness.times_leader()), (true, 0));
    assert!(!witness.election.is_left_to_expire());
    assert_eq!(recorded(&witness), None, "the record proves nothing more");
}

#[test]
fn a_late_renewal_of_the_exited_leader_is_released_too() {
    let (mut exited, mut witness, mut stored) = witnessed(tunables());
    exited.tick(at(3));
    assert_eq!(exited.waiting(), ["renew"]);
    witness.serve_up_to("release", at(1), &mut stored);
    // The renewal is stored after the witness has read the document.
    exited.perform(&mut stored);
    witness.run(at(60), &mut stored);
    assert_eq!(stored.lease().holder, None);
    assert_eq!(
        witness.sent_after(0),
        ["read", "release", "read", "release"]
    );
    assert!(witness.exited);
}

#[test]
fn a_release_of_unknown_outcome_is_sent_again() {
    let (_, mut witness, mut stored) = witnessed(tunables());
    witness.serve_up_to("release", at(1), &mut stored);
    witness.answer_with(at(1), Outcome::Unknown);
    witness.run(at(60), &mut stored);
    assert_eq!(stored.lease().holder, None);
    assert_eq!((witness.count("release"), witness.exited), (2, true));
}

#[test]
fn a_witness_waits_until_an_unsupervised_workload_has_noticed_the_exit() {
    let (_, mut witness, mut stored) = witnessed(with_handoff(seconds(2)));
    witness.run(at(3) - millis(1), &mut stored);
    assert_eq!(witness.count("release"), 0);
    witness.run(at(3), &mut stored);
    assert_eq!((witness.count("release"), witness.exited), (1, true));
    // If the workload ends before its daemon, a wait of one second suffices.
    let ends_first = Tunables {
        workload_ends_first: true,
        ..with_handoff(seconds(2))
    };
    let (_, mut witness, mut stored) = witnessed(ends_first);
    witness.sends_nth(1, "release", at(2), &mut stored);
}

#[test]
fn a_witness_leaves_the_claim_of_another_process_alone() {
    let (exited, mut other, mut stored) = leader_and_follower();
    stored.vacate();
    other.observe(at(1), &mut stored);
    assert!(other.leads(at(1)), "{:?}", other.sent);
    let mut witness = witness_of(&exited, at(2), tunables());
    witness.run(at(60), &mut stored);
    assert_eq!(witness.sent_after(0), ["read"]);
    assert_eq!(stored.claim(), recorded(&other).expect("it leads"));
    assert!(witness.exited && !witness.election.is_left_to_expire());
}

#[test]
fn a_witness_without_proof_or_without_an_answer_releases_nothing() {
    let (exited, mut stored) = leader("a", at(0));
    let unproven = Candidate {
        token_remembered: token(1),
        ..candidate("a")
    };
    let mut witness = Node::begin(unproven, at(1));
    witness.input(at(1), Input::Shutdown);
    witness.run(at(60), &mut stored);
    assert_eq!((witness.count("release"), witness.exited), (0, true));
    let mut cut_off = witness_of(&exited, at(1), tunables());
    cut_off.run_cut_off(at(60), &Outcome::Failed);
    assert_eq!((cut_off.count("release"), cut_off.exited), (0, true));
    assert!(cut_off.election.is_left_to_expire());
}

#[test]
fn an_unhealthy_successor_releases_the_claim_after_a_moment() {
    let (exited, mut stored) = leader("a", at(0));
    let mut successor = exited.successor(at(10));
    successor.input(at(10), Input::Health { healthy: false });
    let released = at(10) + tunables().timings.retry_interval();
    successor.run(released - millis(1), &mut stored);
    assert_eq!(successor.count("release"), 0);
    successor.run(released, &mut stored);
    assert_eq!(stored.lease().holder, None);
    assert_eq!(stored.history[0].reason, Reason::Died);
    successor.input(at(20), Input::Health { healthy: true });
    successor.serve(at(20), &mut stored);
    assert!(successor.leads(at(20)));
}

#[test]
fn a_successor_that_is_healthy_in_time_leads_again() {
    let (exited, mut stored) = leader("a", at(0));
    let mut successor = exited.successor(at(10));
    successor.input(at(10), Input::Health { healthy: false });
    successor.serve(at(10), &mut stored);
    successor.input(at(11), Input::Health { healthy: true });
    successor.serve(at(11), &mut stored);
    assert!(successor.leads(at(11)));
    assert_eq!(successor.count("release"), 0);
}

#[test]
fn an_unhealthy_successor_waits_until_an_unsupervised_workload_has_noticed_the_exit() {
    let slow = with_handoff(seconds(5));
    let (exited, mut stored) = leader_with("a", at(0), slow);
    let mut successor = exited.successor_with(at(10), slow);
    successor.input(at(10), Input::Health { healthy: false });
    successor.sends_nth(1, "release", at(15), &mut stored);
}

#[test]
fn a_successor_releases_the_claim_if_configured_and_contends_again() {
    let (exited, mut stored) = leader("a", at(0));
    let (claim, ..) = *exited.remembered.last().expect("it led");
    let candidate = Candidate {
        predecessor_claim: claim,
        releases_predecessor: true,
        token_remembered: token(1),
        tunables: tunables(),
        ..candidate("a")
    };
    let mut successor = Node::begin(candidate, at(1));
    successor.serve(at(1), &mut stored);
    assert_eq!(successor.sent_after(0)[..2], ["read", "release"]);
    assert_eq!(stored.history[0].reason, Reason::Died);
    successor.run(at(2), &mut stored);
    assert_eq!(successor.token(), token(2));
}

#[test]
fn a_leader_whose_release_was_rejected_leaves_no_proof() {
    let (mut a, mut stored) = leader("a", at(0));
    // A twin on a forked machine has renewed the claim.
    stored.rewrite();
    a.demote(at(1), Input::Shutdown);
    a.run(at(5), &mut stored);
    assert!(a.exited && stored.lease().holder.is_some());
    assert_eq!(recorded(&a), None, "the twin may lead");
    let mut successor = a.successor(at(6));
    successor.run(at(20), &mut stored);
    assert_eq!(successor.count("take_over"), 0, "it waits for the expiry");
}

#[test]
fn a_leader_whose_document_is_gone_leaves_no_proof() {
    let (mut a, stored) = leader("a", at(0));
    let restored = stored.clone();
    a.reread(at(1), &mut Stored::default());
    a.serve(at(1), &mut Stored::default());
    assert_eq!(a.reason(), Some(Reason::StoreRolledBack));
    assert_eq!(recorded(&a), None, "a restored document may name the claim");
    let mut successor = a.successor(at(2));
    successor.run(at(20), &mut restored.clone());
    assert_eq!(successor.count("take_over"), 0, "it waits for the expiry");
}

#[test]
fn a_rejected_adoption_leaves_no_proof() {
    let (mut b, mut stored) = acquiring();
    b.lose_reply(at(1), &mut stored);
    b.run(at(1), &mut stored);
    while b.waiting() != ["renew"] {
        b.wake();
        b.serve_reads(b.now(), &mut stored);
    }
    stored.rewrite();
    b.answer(b.now(), &mut stored);
    assert_eq!(recorded(&b), None);
}

#[test]
fn a_read_confirms_a_release_whose_reply_was_lost() {
    let (mut a, mut stored) = leader("a", at(0));
    a.demote(at(1), Input::Shutdown);
    assert_eq!(a.lose_reply(at(1), &mut stored).as_str(), "release");
    a.run(at(60), &mut stored);
    assert_eq!((a.exited, a.count("release")), (true, 1));
    assert!(!a.election.is_left_to_expire(), "the lease is free");
    assert_eq!(recorded(&a), None);
}
