//! Goal: an acquisition without a reply gives no authority (I7), and is adopted by an acknowledged
//! renewal (I2).
//! Method: a proxy passes the requests and holds back the replies to findAndModify.

use leasehold_testbed::{DaemonTimings, Witness, run};

use crate::scene::{LONG, eventually, operations, shared_stage, throughout, token};

#[test]
fn i7_an_acquisition_without_a_reply_leads_only_when_a_renewal_was_acknowledged() {
    run(async {
        let stage = shared_stage().await;
        let proxy = stage.set().proxy();
        // This text is in each reply to findAndModify, and in no other reply.
        proxy.hold_replies_containing("lastErrorObject");
        let uri = stage.set().proxied_uri(&proxy);
        let a = stage.candidate("a").uri(&uri).start();
        let witness = Witness::of([&a]);
        let stored = stage.stored();
        eventually("the acquisition is stored", async || {
            stored.holder().await.as_deref() == Some("a")
        })
        .await;
        eventually("and its outcome unknown", async || {
            operations(&a, "acquire", "unknown").await >= 1.0
        })
        .await;
        let claim = stored.claim().await;
        let time = DaemonTimings::SHORT.lease_duration;
        throughout(time, "it does not lead", async || !a.leads()).await;
        assert_eq!(operations(&a, "renew", "applied").await, 0.0);

        proxy.resume();
        a.wait_leads(LONG).await;
        assert!(operations(&a, "renew", "applied").await >= 1.0);
        assert_eq!(stored.claim().await, claim, "adopted, not acquired anew");
        assert_eq!(token(&a), Some(1));
        drop(witness);
    });
}
