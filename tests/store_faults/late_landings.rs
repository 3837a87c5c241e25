//! Goal: a write that lands after its sender has given up on it, or after the state has changed,
//! does nothing, or only what an unknown outcome may do.
//! Method: a proxy holds back the requests of one candidate and releases them later.
//!
//! The held text is BSON: a field `holder` of type null is in a new document, in an acquisition's
//! filter and in a release's update, and in no other command.

use leasehold_testbed::{DaemonTimings, Proxy, Stage, Witness, run};
use rustix::process::Signal;

use crate::scene::{
    LONG, eventually, follows, operations, renews, shared_stage, token, undisturbed,
};

const HOLDER_NULL: &str = "\nholder\0";

fn proxied(stage: &Stage) -> (Proxy, String) {
    let proxy = stage.set().proxy();
    let uri = stage.set().proxied_uri(&proxy);
    (proxy, uri)
}

#[test]
fn a_renewal_that_lands_after_another_leads_is_a_no_op() {
    run(async {
        let stage = shared_stage().await;
        let (proxy, uri) = proxied(&stage);
        let a = stage.candidate("a").uri(&uri).start();
        a.wait_leads(LONG).await;
        let b = stage.candidate("b").start();
        follows(&b, "a").await;
        let witness = Witness::of([&a, &b]);
        proxy.hold_requests_containing("findAndModify");
        b.wait_leads(LONG).await;
        let claim = stage.stored().claim().await;
        assert!(proxy.held_requests() > 0);
        proxy.resume();
        follows(&a, "b").await;
        undisturbed(&stage, &claim, DaemonTimings::SHORT.lease_duration).await;
        assert_eq!(witness.leaders(), ["a", "b"]);
    });
}

#[test]
fn a_release_that_lands_after_its_sender_leads_again_does_not_dethrone_it() {
    run(async {
        let stage = shared_stage().await;
        let (proxy, uri) = proxied(&stage);
        let a = stage.candidate("a").uri(&uri).start();
        a.wait_leads(LONG).await;
        let witness = Witness::of([&a]);
        proxy.hold_requests_containing(HOLDER_NULL);
        a.signal(Signal::USR1);
        eventually("the release is held", async || proxy.held_requests() > 0).await;
        // After its cooldown the candidate takes over from its own ended claim, with a new one.
        a.wait_until(|status| status["token"] == 2, LONG).await;
        let claim = stage.stored().claim().await;
        assert!(operations(&a, "release", "unknown").await >= 1.0);
        proxy.resume();
        eventually("the release has landed", async || {
            proxy.held_requests() == 0
        })
        .await;
        undisturbed(&stage, &claim, DaemonTimings::SHORT.renew_interval * 4).await;
        renews(&a).await;
        assert_eq!(token(&a), Some(2));
        assert_eq!(witness.reigns().len(), 2);
    });
}

#[test]
fn an_acquisition_that_lands_after_another_leads_is_a_no_op() {
    run(async {
        let stage = shared_stage().await;
        let first = stage.candidate("first").start();
        first.wait_leads(LONG).await;
        let (proxy, uri) = proxied(&stage);
        let a = stage.candidate("a").uri(&uri).start();
        follows(&a, "first").await;
        proxy.hold_requests_containing(HOLDER_NULL);
        let witness = Witness::of([&first, &a]);
        first.term();
        eventually("the acquisition is held", async || {
            proxy.held_requests() > 0
        })
        .await;
        let c = stage.candidate("c").start();
        witness.add(&c);
        c.wait_leads(LONG).await;
        let claim = stage.stored().claim().await;
        proxy.resume();
        follows(&a, "c").await;
        undisturbed(&stage, &claim, DaemonTimings::SHORT.lease_duration).await;
        assert_eq!(witness.leaders(), ["first", "c"]);
        assert_eq!(token(&c), Some(2));
    });
}

#[test]
fn an_acquisition_that_lands_late_on_a_free_lease_is_adopted() {
    run(async {
        let stage = shared_stage().await;
        let first = stage.candidate("first").start();
        first.wait_leads(LONG).await;
        first.term();
        first.wait_exit(LONG).await;
        let (proxy, uri) = proxied(&stage);
        proxy.hold_requests_containing(HOLDER_NULL);
        let a = stage.candidate("a").uri(&uri).start();
        let witness = Witness::of([&a]);
        eventually("its outcome is unknown", async || {
            operations(&a, "acquire", "unknown").await >= 1.0
        })
        .await;
        assert!(!a.leads());
        proxy.resume();
        a.wait_leads(LONG).await;
        renews(&a).await;
        // One of the acquisitions that were sent meanwhile was applied.
        assert_eq!(token(&a), Some(2));
        assert_eq!(witness.leaders(), ["a"]);
    });
}

#[test]
fn a_creation_that_lands_after_another_made_the_document_changes_nothing() {
    run(async {
        let stage = shared_stage().await;
        let (proxy, uri) = proxied(&stage);
        proxy.hold_requests_containing(HOLDER_NULL);
        let a = stage.candidate("a").uri(&uri).start();
        eventually("its creation is held", async || proxy.held_requests() > 0).await;
        let b = stage.candidate("b").start();
        b.wait_leads(LONG).await;
        let witness = Witness::of([&a, &b]);
        let claim = stage.stored().claim().await;
        proxy.resume();
        follows(&a, "b").await;
        undisturbed(&stage, &claim, DaemonTimings::SHORT.renew_interval * 4).await;
        assert_eq!(witness.leaders(), ["b"]);
        assert_eq!(token(&b), Some(1));
    });
}
