//! Goal: if the client that extends a lock is paused, two owners work at once. Method: pauses the
//! client of `a` with SIGSTOP while its command continues. `b` acquires the expired lock, and both
//! act.

use crate::designs::Design;
use crate::fixture::{AT_WORK, ByHand, Fixture, pause};

async fn both_act(design: Design) {
    let fixture = Fixture::new(ByHand::extended(design)).await;
    let _contenders = pause(&fixture).await;
    fixture.acts_more("a", AT_WORK).await;
    fixture.assert_both_acted("a", "b");
}

#[tokio::test]
async fn of_a_document_with_a_ttl_index_leaves_two_owners() {
    both_act(Design::TtlIndex).await;
}

#[tokio::test]
async fn of_a_locked_at_time_out_leaves_two_owners() {
    both_act(Design::LockedAt).await;
}

#[tokio::test]
async fn of_a_find_and_modify_lock_leaves_two_owners() {
    both_act(Design::FindAndModify).await;
}

#[tokio::test]
async fn of_a_counter_of_one_leaves_two_owners() {
    both_act(Design::Counter { slots: 1 }).await;
}
