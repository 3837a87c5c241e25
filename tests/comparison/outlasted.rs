//! Goal: if nothing extends the lock and the work takes longer than its author expected, two owners
//! work at once. If the design does not compare owners, the first owner's release then frees the
//! second owner's lock. Method: injects no fault; the work takes longer than the lock's expiry.

use crate::designs::Design;
use crate::fixture::{AT_WORK, ByHand, Fixture, LONG, outlast};

async fn both_act(design: Design) {
    let fixture = Fixture::new(ByHand::not_extended(design)).await;
    let came = outlast(&fixture, LONG).await;
    assert!(came, "{design:?} held: {}", fixture.describe());
    fixture.assert_both_acted("a", "b");
}

#[tokio::test]
async fn a_document_with_a_ttl_index_is_deleted_under_its_owner() {
    both_act(Design::TtlIndex).await;
}

#[tokio::test]
async fn a_locked_at_time_out_passes_under_its_owner() {
    both_act(Design::LockedAt).await;
}

#[tokio::test]
async fn a_find_and_modify_lock_expires_under_its_owner() {
    both_act(Design::FindAndModify).await;
}

#[tokio::test]
async fn a_counter_of_one_is_deleted_under_its_owner() {
    both_act(Design::Counter { slots: 1 }).await;
}

/// `a` works until after its lock has expired. The release of `a` frees the lock of `b`, although
/// `b` extends its lock in time. `c` then enters.
#[tokio::test]
async fn a_late_release_frees_the_lock_of_the_next_owner() {
    let fixture = Fixture::new(ByHand::extended(Design::LockedAt)).await;
    let a = fixture.start_by(&ByHand::not_extended(Design::LockedAt), "a", "a", None);
    fixture.acts_more("a", AT_WORK).await;
    let _b = fixture.at_work("b").await;
    fixture.end(&a, "a").await;
    let _c = fixture.at_work("c").await;
    fixture.acts_more("b", AT_WORK).await;
    fixture.assert_both_acted("b", "c");
}
