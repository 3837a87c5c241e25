//! Goal: a version check at the end refuses the second *write*, but not the work that both have
//! done by then.
//! Method: two clients; no fault.

use leasehold_testbed::process::exit_code;

use crate::client::NOT_OURS;
use crate::designs::Design;
use crate::scene::{AT_WORK, ByHand, LONG, Scene};

#[tokio::test]
async fn both_work_and_only_one_may_write() {
    let scene = Scene::new(ByHand::extended(Design::VersionCheck)).await;
    let (a, b) = (scene.start("a"), scene.start("b"));
    scene.acts_more("a", AT_WORK).await;
    scene.acts_more("b", AT_WORK).await;
    scene.acts_more("a", AT_WORK).await;
    let beside = scene.journal.after_the_next_began("a", "b");
    assert!(beside >= AT_WORK, "it held: {}", scene.tell());
    let mut codes = Vec::new();
    for (client, name) in [(a, "a"), (b, "b")] {
        scene.finish(name);
        let status = client.wait(LONG).await.expect("its work is over");
        codes.push(exit_code(status));
    }
    assert_eq!(codes, [0, i32::from(NOT_OURS)], "{}", scene.tell());
}
