//! Goal: renewals never wait for a connection that a change stream uses, and hanging streams do not
//! accumulate. Method: use connection strings with small pools, and hold back the replies to
//! getMore with a proxy.

use std::time::Instant;

use leasehold_testbed::{DaemonTimings, LeaderMonitor};

use crate::fixture::{LONG, shared_stage};

#[tokio::test]
async fn a_pool_of_one_connection_delays_no_renewal() {
    let stage = shared_stage().await.timings(DaemonTimings::DEMO);
    let uri = format!("{}&maxPoolSize=1&maxConnecting=1", stage.set().uri());
    let a = stage.candidate("a").uri(&uri).leading(LONG).await;
    a.wait_stream().await;
    // The stream's getMore waits for two seconds; a renewal queued behind the getMore would time
    // out after one second.
    for _ in 0..10 {
        a.wait_renewal(LONG).await;
    }
    // On a busy machine, one or two renewals may time out.
    let unknown = a.operations("renew", "unknown").await;
    assert!(unknown <= 2.0, "{unknown}: {}", a.logs());
}

#[tokio::test]
async fn hanging_change_streams_never_cost_the_leadership() {
    let timings = DaemonTimings::DEMO;
    let stage = shared_stage().await.timings(timings);
    let proxy = stage.set().proxy();
    let uri = format!("{}&maxPoolSize=3", stage.set().proxied_uri(&proxy));
    let a = stage.candidate("a").uri(&uri).leading(LONG).await;
    a.wait_renewal(LONG).await;
    let monitor = LeaderMonitor::of([&a]);
    proxy.hold_replies_containing("nextBatch");
    let held = a.valid_until_ns();
    // A stream times out after a third of the lease plus operation_timeout.
    let each = timings.lease_duration / 3 + timings.operation_timeout;
    // Six hanging streams would need twice as many connections as the pool has.
    let end = Instant::now() + each * 6;
    while Instant::now() < end {
        a.wait_renewal(LONG).await;
    }
    let kind = "the change stream does not answer";
    a.wait_logged(kind, LONG).await;
    assert!(a.valid_until_ns() > held);
    assert_eq!(a.token(), Some(1));
    assert_eq!(monitor.leaders(), ["a"]);
    proxy.resume();
}
