//! Goal: a follower's stream misses no write. With MongoDB's defaults, a write that is not
//! majority-committed when the stream opens would be missing from both the stream and the read that
//! follows. Method: freeze both secondaries, so that only the primary has the takeover.

use std::sync::Arc;
use std::time::Duration;

use leasehold_testbed::{DaemonTimings, ReplicaSet};
use mongodb::bson::{Bson, Document, Uuid, doc};
use mongodb::options::{Acknowledgment, WriteConcern};

use crate::fixture::{LONG, stage_on};

/// Maximum time until the follower shows the takeover. Shorter than the lease duration, because
/// after a lease duration a follower reads even without an event.
const SHOWN_WITHIN: Duration = Duration::from_secs(12);

#[tokio::test]
async fn a_stream_reports_a_takeover_that_only_the_primary_has_when_it_opens() {
    let set = Arc::new(ReplicaSet::builder().default_election().start().await);
    let stage = stage_on(&set).timings(DaemonTimings::DEFAULT);
    stage.candidate("a").leading(LONG).await.kill();
    let primary = set.primary().await;
    let secondaries: Vec<usize> = (0..set.member_count()).filter(|n| *n != primary).collect();
    secondaries.iter().for_each(|member| set.stop(*member));

    let claim = Bson::from(Uuid::new());
    let leases = set.client().database(stage.database());
    let leases = leases.collection::<Document>(stage.collection());
    let taken = doc! {
        "token": 2_i64, "revision": Uuid::new(), "holder.identity": "x", "holder.claim": &claim,
        "holder.token": 2_i64,
    };
    let mut alone = WriteConcern::default();
    alone.w = Some(Acknowledgment::Nodes(1));
    let taken = leases
        .update_one(doc! { "_id": stage.lease() }, doc! { "$set": taken })
        .write_concern(alone)
        .await
        .expect("the primary accepts the write");
    assert_eq!(taken.modified_count, 1);

    let b = stage.candidate("b").following("a", LONG).await;
    b.wait_stream().await;
    secondaries.iter().for_each(|member| set.cont(*member));
    // Renewals prevent the follower's own reads, but contain neither the new token nor the new
    // claim.
    let stored = stage.stored();
    let renewals = async {
        loop {
            assert!(stored.renew_as(&claim).await);
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    tokio::select! {
        _ = b.wait_follows("x", SHOWN_WITHIN) => {}
        () = renewals => {}
    }
    assert_eq!(b.status()["holder"]["token"], 2, "{}", b.logs());
}
