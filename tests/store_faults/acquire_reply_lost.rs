//! Goal: an acquisition without a reply gives no authority (I7), so the candidate leads only once a
//! renewal is acknowledged (I2). Method: a proxy passes requests but holds back the replies to
//! findAndModify.

use leasehold_testbed::{DaemonTimings, LeaderMonitor};

use crate::fixture::{LONG, eventually, shared_stage, throughout};

#[tokio::test]
async fn i7_an_acquisition_without_a_reply_leads_only_when_a_renewal_was_acknowledged() {
    let stage = shared_stage().await;
    let (proxy, behind) = stage.proxied();
    // All replies to findAndModify contain this text, and no other reply does.
    proxy.hold_replies_containing("lastErrorObject");
    let a = behind.candidate("a").start();
    let monitor = LeaderMonitor::of([&a]);
    let stored = stage.stored();
    eventually("the acquisition is stored", async || {
        stored.holder().await.as_deref() == Some("a")
    })
    .await;
    a.wait_operations("acquire", "unknown", 1.0).await;
    let claim = stored.claim().await;
    let time = DaemonTimings::SHORT.lease_duration;
    throughout(time, "the candidate does not lead", async || !a.leads()).await;
    assert_eq!(a.operations("renew", "applied").await, 0.0);

    proxy.resume();
    a.wait_leads(LONG).await;
    assert!(a.operations("renew", "applied").await >= 1.0);
    assert_eq!(stored.claim().await, claim, "adopted, not acquired again");
    assert_eq!(a.token(), Some(1));
    drop(monitor);
}
