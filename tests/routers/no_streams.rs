//! Goal: candidates work on a server without change streams. The candidates poll, and do not burden
//! the server by trying to open a stream at each retry interval.

use std::time::Duration;

use crate::fixture::{Cluster, LONG};

/// Observation time, far longer than ten retry intervals (two seconds).
const OBSERVED: Duration = Duration::from_secs(8);

#[tokio::test]
async fn a_server_that_does_not_know_the_stage_is_asked_again_each_minute() {
    let cluster = Cluster::shared().await;
    for router in &cluster.routers {
        router.refuse_streams(40_324, "Location40324");
    }
    let (a, b) = cluster.pair().await;
    b.wait_logged("no change stream, polling", LONG).await;
    tokio::time::sleep(OBSERVED).await;
    let attempts: usize = cluster.routers.iter().map(|r| r.streams_opened()).sum();
    // Each candidate tries to open a stream at startup, and again once its client has discovered
    // the second router.
    assert!((2..=6).contains(&attempts), "{attempts} attempts");
    for daemon in [&a, &b] {
        assert_eq!(daemon.metric("leasehold_watch_connected").await, 0.0);
    }
    a.term();
    b.wait_leads(LONG).await;
}
