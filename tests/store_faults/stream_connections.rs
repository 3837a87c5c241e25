//! Goal: renewals never wait for a connection that a change stream holds, and hanging streams do
//! not pile up.
//! Method: connection strings with small pools, and a proxy that holds back the replies to getMore.

use std::time::Instant;

use leasehold_testbed::{DaemonTimings, Witness, run};

use crate::scene::{
    LONG, eventually, operations, renews, said, shared_stage, token, valid_until_ns,
};

#[test]
fn a_pool_of_one_connection_delays_no_renewal() {
    run(async {
        let stage = shared_stage().await.timings(DaemonTimings::DEMO);
        let uri = format!("{}&maxPoolSize=1&maxConnecting=1", stage.set().uri());
        let a = stage.candidate("a").uri(&uri).start();
        a.wait_leads(LONG).await;
        eventually("the change stream is open", async || {
            a.metric("leasehold_watch_connected").await == 1.0
        })
        .await;
        // The stream's getMore waits for two seconds; a renewal queued behind it would time out
        // after one.
        for _ in 0..10 {
            renews(&a).await;
        }
        assert_eq!(
            operations(&a, "renew", "unknown").await,
            0.0,
            "{}",
            a.logs()
        );
    });
}

#[test]
fn change_streams_that_hang_cost_no_leadership_however_many_there_were() {
    run(async {
        let stage = shared_stage().await;
        let proxy = stage.set().proxy();
        let uri = format!("{}&maxPoolSize=3", stage.set().proxied_uri(&proxy));
        let a = stage.candidate("a").uri(&uri).start();
        a.wait_leads(LONG).await;
        renews(&a).await;
        let witness = Witness::of([&a]);
        proxy.hold_replies_containing("nextBatch");
        let held = valid_until_ns(&a);
        // Each stream is given up after a third of the lease and operation_timeout.
        let each = DaemonTimings::SHORT.lease_duration / 3 + DaemonTimings::SHORT.operation_timeout;
        let end = Instant::now() + each * 12;
        while Instant::now() < end {
            renews(&a).await;
        }
        let kind = "the change stream does not answer";
        eventually("streams hung", async || said(&a, kind) >= 1).await;
        assert!(valid_until_ns(&a) > held);
        assert_eq!(token(&a), Some(1));
        assert_eq!(witness.leaders(), ["a"]);
        proxy.resume();
    });
}
