//! Goal: a write that arrives late, after its timeout or after a change of state, either has no
//! effect, or has an effect that the sender expects. Method: hold back one candidate's requests
//! with a proxy, and release them later.
//!
//! The proxy holds commands that contain a BSON field `holder` of type null. Only a create, the
//! filter of an acquisition and the update of a release have this field.

use leasehold_testbed::{DaemonTimings, LeaderMonitor};
use rustix::process::Signal;

use crate::fixture::{LONG, eventually, shared_stage, undisturbed};

const HOLDER_NULL: &str = "\nholder\0";

#[tokio::test]
async fn a_renewal_that_lands_after_another_leads_is_a_no_op() {
    let stage = shared_stage().await.timings(DaemonTimings::DEMO);
    let (proxy, behind) = stage.proxied();
    let a = behind.candidate("a").leading(LONG).await;
    let b = stage.candidate("b").following("a", LONG).await;
    let monitor = LeaderMonitor::of([&a, &b]);
    proxy.hold_requests_containing("findAndModify");
    b.wait_leads(LONG).await;
    let claim = stage.stored().claim().await;
    assert!(proxy.held_requests() > 0);
    proxy.resume();
    a.wait_follows("b", LONG).await;
    undisturbed(&stage, &claim, DaemonTimings::DEMO.lease_duration).await;
    assert_eq!(monitor.leaders(), ["a", "b"]);
}

#[tokio::test]
async fn a_release_that_lands_after_its_sender_leads_again_does_not_dethrone_it() {
    let stage = shared_stage().await.timings(DaemonTimings::DEMO);
    let (proxy, behind) = stage.proxied();
    let a = behind.candidate("a").leading(LONG).await;
    let monitor = LeaderMonitor::of([&a]);
    proxy.hold_requests_containing(HOLDER_NULL);
    a.signal(Signal::USR1);
    eventually("the release is held", async || proxy.held_requests() > 0).await;
    // After its cooldown, the candidate takes over from its own old claim with a new claim.
    a.wait_until(|status| status["token"] == 2, LONG).await;
    let claim = stage.stored().claim().await;
    assert!(a.operations("release", "unknown").await >= 1.0);
    proxy.resume();
    eventually("the release has arrived", async || {
        proxy.held_requests() == 0
    })
    .await;
    undisturbed(&stage, &claim, DaemonTimings::DEMO.renew_interval * 4).await;
    a.wait_renewal(LONG).await;
    assert_eq!(a.token(), Some(2));
    assert_eq!(monitor.reigns().len(), 2);
}

#[tokio::test]
async fn an_acquisition_that_lands_after_another_leads_is_a_no_op() {
    let stage = shared_stage().await.timings(DaemonTimings::DEMO);
    let first = stage.candidate("first").leading(LONG).await;
    let (proxy, behind) = stage.proxied();
    let a = behind.candidate("a").following("first", LONG).await;
    proxy.hold_requests_containing(HOLDER_NULL);
    let monitor = LeaderMonitor::of([&first, &a]);
    first.term();
    eventually("the acquisition is held", async || {
        proxy.held_requests() > 0
    })
    .await;
    let c = stage.candidate("c").start();
    monitor.add(&c);
    c.wait_leads(LONG).await;
    let claim = stage.stored().claim().await;
    proxy.resume();
    a.wait_follows("c", LONG).await;
    undisturbed(&stage, &claim, DaemonTimings::DEMO.lease_duration).await;
    assert_eq!(monitor.leaders(), ["first", "c"]);
    assert_eq!(c.token(), Some(2));
}

#[tokio::test]
async fn an_acquisition_that_lands_late_on_a_free_lease_is_adopted() {
    let stage = shared_stage().await.timings(DaemonTimings::DEMO);
    let first = stage.candidate("first").leading(LONG).await;
    first.term_and_exit(LONG).await;
    let (proxy, behind) = stage.proxied();
    proxy.hold_requests_containing(HOLDER_NULL);
    let a = behind.candidate("a").start();
    let monitor = LeaderMonitor::of([&a]);
    a.wait_operations("acquire", "unknown", 1.0).await;
    assert!(!a.leads());
    proxy.resume();
    a.wait_leads(LONG).await;
    a.wait_renewal(LONG).await;
    // Only one of the acquisitions sent in the meantime was applied.
    assert_eq!(a.token(), Some(2));
    assert_eq!(monitor.leaders(), ["a"]);
}

#[tokio::test]
async fn a_creation_that_lands_after_another_made_the_document_changes_nothing() {
    let stage = shared_stage().await.timings(DaemonTimings::DEMO);
    let (proxy, behind) = stage.proxied();
    proxy.hold_requests_containing(HOLDER_NULL);
    let a = behind.candidate("a").start();
    eventually("its creation is held", async || proxy.held_requests() > 0).await;
    let b = stage.candidate("b").leading(LONG).await;
    let monitor = LeaderMonitor::of([&a, &b]);
    let claim = stage.stored().claim().await;
    proxy.resume();
    a.wait_follows("b", LONG).await;
    undisturbed(&stage, &claim, DaemonTimings::DEMO.renew_interval * 4).await;
    assert_eq!(monitor.leaders(), ["b"]);
    assert_eq!(b.token(), Some(1));
}
