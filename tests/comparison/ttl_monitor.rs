//! Goal: a TTL index frees the lock of a killed holder only in the TTL monitor's next pass, up to a
//! minute after the expiry (here up to ten seconds). Method: a holder takes the lock right after a
//! pass of the monitor, and is killed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_testbed::{ReplicaSet, eventually};
use mongodb::bson::doc;

use crate::designs::Design;
use crate::fixture::{ByHand, Fixture, LIFE};

const PAUSE: Duration = Duration::from_secs(10);

async fn passes(set: &ReplicaSet) -> i64 {
    let status = set.command(0, doc! { "serverStatus": 1 }).await;
    let status = status.expect("the member answers");
    let metrics = status.get_document("metrics");
    let ttl = metrics.and_then(|metrics| metrics.get_document("ttl"));
    let passes = ttl.and_then(|ttl| ttl.get_i64("passes"));
    passes.expect("serverStatus counts the monitor's passes")
}

#[tokio::test]
async fn the_document_of_a_killed_holder_stays_until_the_ttl_monitor_runs() {
    let seconds = format!("ttlMonitorSleepSecs={}", PAUSE.as_secs());
    let builder = ReplicaSet::builder().members(1).parameter(&seconds);
    let set = Arc::new(builder.start().await);
    let fixture = Fixture::on(set, ByHand::extended(Design::TtlIndex));
    let before = passes(fixture.set()).await;
    eventually("the TTL monitor passes", async || {
        passes(fixture.set()).await != before
    })
    .await;
    let passed = Instant::now();
    let a = fixture.start("a");
    fixture.acts_more("a", 1).await;
    fixture.kill(&a, "a");
    let expired = passed.elapsed() + LIFE;
    assert!(expired < PAUSE, "this machine is too slow: {expired:?}");
    let _b = fixture.start("b");
    fixture.acts_more("b", 1).await;
    // The lock becomes free in the monitor's next pass, not at its expiry. The tolerance covers the
    // delay until the test notices a pass.
    let freed = passed.elapsed();
    assert!(
        freed > PAUSE - LIFE / 2,
        "{freed:?}: {}",
        fixture.describe()
    );
}
