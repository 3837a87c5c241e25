//! Goal: the effects of a holder that was killed.
//! Method: SIGKILL of one client, and its work ends with it.

use std::time::Duration;

use leasehold_testbed::process::exit_code;

use crate::client::NOT_ACQUIRED;
use crate::designs::Design;
use crate::scene::{ByHand, KEPT_OUT, LONG, Scene, die_beside_another};

/// The design does not record which count belongs to which holder, so all share one expiry: as long
/// as one of them extends it, the place of the killed one stays taken.
#[tokio::test]
async fn a_counter_never_gets_the_place_of_a_dead_holder_back_while_another_lives() {
    let scene = Scene::new(ByHand::extended(Design::Counter { slots: 2 })).await;
    let came = die_beside_another(&scene, KEPT_OUT).await;
    assert!(!came, "the counter freed a place: {}", scene.tell());
    scene.acts_more("b", 1).await;
}

/// Without an expiry, each acquisition times out, indefinitely.
#[tokio::test]
async fn a_lock_without_expiry_stays_with_the_dead() {
    let means = ByHand {
        wait: Duration::from_secs(3),
        ..ByHand::extended(Design::Pessimistic)
    };
    let scene = Scene::new(means).await;
    let a = scene.at_work("a").await;
    scene.kill(&a, "a");
    for name in ["b", "c"] {
        let status = scene.start(name).wait(LONG).await.expect("it gives up");
        assert_eq!(exit_code(status), i32::from(NOT_ACQUIRED));
        assert_eq!(scene.journal.count(name), 0, "{}", scene.tell());
    }
}
