//! Goal: a lock that is re-entrant by owner id admits two processes with equal ids. Ids are equal
//! after copying a configuration, cloning a machine, or building the id from `hostname` and pid 1
//! in containers. Method: starts two clients with one id, and injects no fault.

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
