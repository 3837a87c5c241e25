//! Goal: one wrong wall clock suffices to take a lock away from a live owner that extends it.
//! Method: libfaketime sets one real client's clock an hour off. The other client, mongod and the
//! commands have the correct time.

use crate::designs::Design;
use crate::fixture::{ByHand, Fixture, LONG, skew};

async fn stolen(design: Design, clock_of_a: Option<&str>, clock_of_b: Option<&str>) {
    let fixture = Fixture::new(ByHand::extended(design)).await;
    let came = skew(&fixture, clock_of_a, clock_of_b, LONG).await;
    assert!(came, "{design:?} held: {}", fixture.describe());
    fixture.assert_both_acted("a", "b");
}

#[tokio::test]
async fn a_contender_that_is_ahead_steals_a_locked_at_lock() {
    stolen(Design::LockedAt, None, Some("+1h")).await;
}

#[tokio::test]
async fn a_contender_that_is_ahead_steals_a_find_and_modify_lock() {
    stolen(Design::FindAndModify, None, Some("+1h")).await;
}

#[tokio::test]
async fn a_contender_that_is_ahead_deletes_a_live_count() {
    stolen(Design::Counter { slots: 1 }, None, Some("+1h")).await;
}

#[tokio::test]
async fn a_holder_that_is_behind_has_its_document_deleted_by_the_ttl_monitor() {
    stolen(Design::TtlIndex, Some("-1h"), None).await;
}
