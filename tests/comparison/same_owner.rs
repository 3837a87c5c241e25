//! Goal: re-entrance by owner id admits two processes with equal ids. The ids can be equal because
//! of a copied configuration, a cloned machine, or an id made of `hostname` and pid 1 in
//! containers. Method: two clients with one id; no fault.

use crate::designs::Design;
use crate::fixture::{AT_WORK, ByHand, Fixture};

#[tokio::test]
async fn two_processes_with_one_owner_id_hold_at_once() {
    let fixture = Fixture::new(ByHand::extended(Design::FindAndModify)).await;
    let _a = fixture.start_as("worker-1", "a", None);
    fixture.acts_more("a", AT_WORK).await;
    let _b = fixture.start_as("worker-1", "b", None);
    fixture.acts_more("b", AT_WORK).await;
    fixture.acts_more("a", AT_WORK).await;
    fixture.assert_both_acted("a", "b");
}
