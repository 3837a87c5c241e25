//! Goal: a version check at the end refuses the second *write*, but not the work that both have
//! done by then.
//! Method: two clients; no fault.

use crate::client::NOT_OURS;
use crate::designs::Design;
use crate::scene::{AT_WORK, ByHand, Scene};

#[tokio::test]
async fn both_work_and_only_one_may_write() {
    let scene = Scene::new(ByHand::extended(Design::VersionCheck)).await;
    let (a, b) = (scene.start("a"), scene.start("b"));
    scene.acts_more("a", AT_WORK).await;
    scene.acts_more("b", AT_WORK).await;
    scene.acts_more("a", AT_WORK).await;
    scene.assert_both_acted("a", "b");
    let mut codes = Vec::new();
    for (client, name) in [(a, "a"), (b, "b")] {
        codes.push(scene.end(&client, name).await);
    }
    assert_eq!(codes, [0, i32::from(NOT_OURS)], "{}", scene.tell());
}
