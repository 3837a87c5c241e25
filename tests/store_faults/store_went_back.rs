//! Goal: a document that is deleted or restored to an older state under a live
//! leader makes it step down, and nobody leads until everybody who saw the
//! lease has expired; the next token is above all before (I3).
//! Method: an operator's delete, drop and restore, with a change stream and
//! with one that never opens.
//!
//! With a change stream the event tells first and the reason is
//! `store_went_back`. Without one the next renewal tells first, and then the
//! reason for the step-down is `rejected` and `store_went_back` comes with the
//! read after it. A restored state of the very claim that leads has its token:
//! that can only be known as a revision that it did not send, `duplicate`.

use leasehold_testbed::daemon::boottime_ns;
use leasehold_testbed::{Daemon, DaemonTimings, Proxy, Stage, Witness, run};
use mongodb::bson::Bson;

use crate::scene::{
    LONG, eventually, follows, leader_of, pair, renews, said, shared_stage, token, transitions,
};

const WENT_BACK: &str = "lease document is older";

/// The shortest time to the next leader: a lease duration, less what the test
/// itself needs to look.
const WAIT_MIN_NS: u64 = 2_800_000_000;

/// A leader whose token is 2, so that there is something to fall back from.
async fn second_reign(stage: &Stage, uri: &str) -> Daemon {
    let first = stage.candidate("first").start();
    first.wait_leads(LONG).await;
    first.term();
    first.wait_exit(LONG).await;
    let a = stage.candidate("a").uri(uri).start();
    a.wait_leads(LONG).await;
    assert_eq!(token(&a), Some(2));
    a
}

/// It stepped down, waits, and leads again with a token above 2.
async fn waits_and_leads_above(a: &Daemon, changed_ns: u64) {
    a.wait_until(|status| status["leader"] == false, LONG).await;
    a.wait_leads(LONG).await;
    let waited = boottime_ns() - changed_ns;
    assert!(waited >= WAIT_MIN_NS, "led again after {waited} ns");
    assert_eq!(token(a), Some(3));
}

#[test]
fn i3_a_document_deleted_under_a_leader_is_noticed_by_the_change_stream() {
    run(async {
        let stage = shared_stage().await;
        let a = second_reign(&stage, &stage.set().uri()).await;
        let witness = Witness::of([&a]);
        let changed = boottime_ns();
        stage.stored().delete().await;
        waits_and_leads_above(&a, changed).await;
        assert!(transitions(&a, "store_went_back").await >= 1.0);
        assert_eq!(said(&a, WENT_BACK), 1);
        assert_eq!(witness.reigns().len(), 2);
    });
}

#[test]
fn i3_a_document_deleted_under_a_leader_is_noticed_by_its_renewal() {
    run(async {
        let stage = shared_stage().await;
        let (_proxy, uri) = without_change_stream(&stage);
        let a = second_reign(&stage, &uri).await;
        let witness = Witness::of([&a]);
        let changed = boottime_ns();
        stage.stored().delete().await;
        waits_and_leads_above(&a, changed).await;
        let told = transitions(&a, "rejected").await + transitions(&a, "store_went_back").await;
        assert!(told >= 1.0);
        assert_eq!(said(&a, WENT_BACK), 1);
        assert_eq!(witness.reigns().len(), 2);
    });
}

#[test]
fn i3_a_dropped_collection_is_a_store_that_went_back_for_leader_and_follower() {
    run(async {
        let stage = shared_stage().await;
        let (a, b) = pair(&stage).await;
        let witness = Witness::of([&a, &b]);
        let changed = boottime_ns();
        stage.stored().drop_collection().await;
        a.wait_until(|status| status["leader"] == false, LONG).await;
        let next = leader_of(&[&a, &b]).await;
        assert!(boottime_ns() - changed >= WAIT_MIN_NS);
        assert_eq!(token(next), Some(2));
        for daemon in [&a, &b] {
            assert!(said(daemon, WENT_BACK) >= 1, "{}", daemon.logs());
        }
        // The stream that the drop invalidated is open again: obeyed at once.
        renews(next).await;
        assert_eq!(witness.reigns().len(), 2);
    });
}

#[test]
fn i3_a_document_restored_to_an_earlier_reign_has_a_lower_token_and_is_noticed() {
    for streams in [true, false] {
        run(async {
            let stage = shared_stage().await;
            let (_proxy, polling) = without_change_stream(&stage);
            let uri = if streams { stage.set().uri() } else { polling };
            let first = stage.candidate("first").start();
            first.wait_leads(LONG).await;
            let backup = stage.stored().get().await;
            first.term();
            first.wait_exit(LONG).await;
            let a = stage.candidate("a").uri(&uri).start();
            a.wait_leads(LONG).await;
            let witness = Witness::of([&a]);
            let changed = boottime_ns();
            stage.stored().replace(&backup).await;
            waits_and_leads_above(&a, changed).await;
            assert!(said(&a, WENT_BACK) >= 1, "{}", a.logs());
            drop(witness);
        });
    }
}

#[test]
fn i1_a_document_restored_to_an_earlier_renewal_of_its_leader_counts_as_a_duplicate() {
    run(async {
        let stage = shared_stage().await;
        let a = second_reign(&stage, &stage.set().uri()).await;
        let witness = Witness::of([&a]);
        let backup = stage.stored().get().await;
        renews(&a).await;
        renews(&a).await;
        let changed = boottime_ns();
        stage.stored().replace(&backup).await;
        waits_and_leads_above(&a, changed).await;
        assert_eq!(said(&a, WENT_BACK), 0);
        assert!(transitions(&a, "duplicate").await >= 1.0);
        assert_eq!(witness.reigns().len(), 2);
    });
}

#[test]
fn i3_a_follower_that_sees_the_document_vanish_waits_before_it_leads() {
    run(async {
        let stage = shared_stage().await;
        let (a, b) = pair(&stage).await;
        let witness = Witness::of([&a, &b]);
        // A leader that cannot see what happens to the store, and keeps its
        // authority meanwhile: this is what the wait is for.
        a.stop();
        let changed = boottime_ns();
        stage.stored().delete().await;
        b.wait_leads(LONG).await;
        assert!(boottime_ns() - changed >= WAIT_MIN_NS);
        assert_eq!(token(&b), Some(2));
        a.cont();
        follows(&a, "b").await;
        assert_eq!(witness.leaders(), ["a", "b"]);
    });
}

#[test]
fn i3_a_restart_remembers_the_token_of_a_document_that_was_deleted_meanwhile() {
    run(async {
        let stage = shared_stage().await;
        let mut a = second_reign(&stage, &stage.set().uri()).await;
        a.term();
        a.wait_exit(LONG).await;
        stage.stored().delete().await;
        a.restart_same_directory();
        a.wait_leads(LONG).await;
        assert_eq!(token(&a), Some(3));
        assert_eq!(said(&a, WENT_BACK), 1);
    });
}

#[test]
fn a_majority_read_alone_never_makes_a_leader_believe_that_the_store_went_back() {
    run(async {
        let stage = shared_stage().await.timings(DaemonTimings::DEMO);
        let proxy = stage.set().proxy();
        // The read that has to confirm it is never answered.
        proxy.hold_requests_containing("linearizable");
        let uri = stage.set().proxied_uri(&proxy);
        let a = stage.candidate("a").uri(&uri).start();
        a.wait_leads(LONG).await;
        let backup = stage.stored().get().await;
        stage.stored().delete().await;
        eventually("the confirmation is asked for", async || {
            proxy.held_requests() > 0
        })
        .await;
        a.wait_until(|status| status["leader"] == false, LONG).await;
        assert_eq!(transitions(&a, "store_went_back").await, 0.0);
        assert_eq!(said(&a, WENT_BACK), 0);
        // What was missing is there again: a deposed primary had answered.
        let mut found = backup.clone();
        found.insert("holder", Bson::Null);
        stage.stored().replace(&found).await;
        proxy.resume();
        a.wait_leads(LONG).await;
        assert_eq!(transitions(&a, "store_went_back").await, 0.0);
        assert_eq!(said(&a, WENT_BACK), 0);
    });
}

/// The command that opens a change stream never gets through.
fn without_change_stream(stage: &Stage) -> (Proxy, String) {
    let proxy = stage.set().proxy();
    proxy.hold_requests_containing("$changeStream");
    let uri = stage.set().proxied_uri(&proxy);
    (proxy, uri)
}
