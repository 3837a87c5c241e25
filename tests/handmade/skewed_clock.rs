//! Goal: one client with a wrong wall clock steals a live, extended lock.
//! Method: libfaketime gives one real client a clock that is an hour off; the other client, mongod
//! and the commands have the right time.

use leasehold_testbed::FakeClock;

use crate::designs::Design;
use crate::scene::{AT_WORK, ByHand, LONG, Scene, skew};

async fn stolen(design: Design, clock_of_a: Option<&str>, clock_of_b: Option<&str>) {
    let clock = |offset| FakeClock::offset(offset).expect("libfaketime");
    let (clock_of_a, clock_of_b) = (clock_of_a.map(clock), clock_of_b.map(clock));
    let scene = Scene::new(ByHand::extended(design)).await;
    let came = skew(&scene, clock_of_a.as_ref(), clock_of_b.as_ref(), LONG).await;
    assert!(came, "{design:?} held: {}", scene.tell());
    let beside = scene.journal.after_the_next_began("a", "b");
    assert!(beside >= AT_WORK, "{design:?} held: {}", scene.tell());
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
