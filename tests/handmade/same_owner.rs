//! Goal: re-entrance by owner id admits two processes that have the same id: copied configuration,
//! a cloned machine, `hostname` and pid 1 in containers.
//! Method: two clients with one id; no fault.

use crate::designs::Design;
use crate::scene::{AT_WORK, ByHand, Scene};

#[tokio::test]
async fn two_processes_with_one_owner_id_hold_at_once() {
    let scene = Scene::new(ByHand::extended(Design::FindAndModify)).await;
    let _a = scene.start_as("worker-1", "a", None);
    scene.acts_more("a", AT_WORK).await;
    let _b = scene.start_as("worker-1", "b", None);
    scene.acts_more("b", AT_WORK).await;
    scene.acts_more("a", AT_WORK).await;
    scene.assert_both_acted("a", "b");
}
