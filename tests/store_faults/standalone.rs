//! Goal: on a single mongod outside a replica set, leasehold polls, and the daemon logs the missing
//! guarantees.

use std::sync::Arc;

use leasehold_testbed::{LeaderMonitor, ReplicaSet};
use mongodb::bson::{DateTime, doc};

use crate::fixture::{LONG, leader_of, pair, stage_on};

#[tokio::test]
async fn on_a_standalone_mongod_candidates_poll_elect_hand_over_and_take_over() {
    let set = Arc::new(ReplicaSet::builder().standalone().start().await);
    let stage = stage_on(&set);
    let (a, b) = pair(&stage).await;
    let c = stage.candidate("c").following("a", LONG).await;
    let monitor = LeaderMonitor::of([&a, &b, &c]);
    let warnings = [
        "no change stream, polling",
        "an acknowledged write is lost if this server is lost",
    ];
    for daemon in [&a, &b, &c] {
        for warning in warnings {
            daemon.wait_logged(warning, LONG).await;
        }
        assert_eq!(daemon.metric("leasehold_watch_connected").await, 0.0);
        daemon
            .wait_logged(r#""store":"standalone server""#, LONG)
            .await;
    }
    let stored = stage.stored();
    let request = doc! { "kind": "transfer", "token": 1_i64, "to": "c", "at": DateTime::now() };
    stored.set(doc! { "request": request }).await;
    c.wait_leads(LONG).await;
    assert_eq!(monitor.leaders(), ["a", "c"]);
    b.wait_follows("c", LONG).await;
    for daemon in [&a, &b, &c] {
        for warning in warnings {
            // The daemon logs each warning once, not for each attempt.
            assert_eq!(daemon.logged(warning), 1, "{warning}: {}", daemon.logs());
        }
    }
    c.term_and_exit(LONG).await;
    // `a` is in its cooldown, so either candidate may lead next.
    let next = leader_of(&[&a, &b]).await;
    let token_before = next.token();
    let other = if next.identity() == "a" { &b } else { &a };
    other.wait_follows(next.identity(), LONG).await;
    next.kill();
    other.wait_leads(LONG).await;
    assert!(monitor.reigns().len() >= 4);
    assert!(other.token() > token_before);
    // The daemon notices a deletion, although a standalone server does not support linearizable
    // reads.
    stored.delete().await;
    other.wait_not_leader(LONG).await;
    other.wait_leads(LONG).await;
    let older = other.logged("lease document is older");
    assert!(older >= 1, "{}", other.logs());
    assert!(monitor.reigns().len() >= 5);
}
