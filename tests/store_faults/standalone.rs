//! Goal: a single mongod without a replica set works, by polling, and the daemon reports the
//! guarantees that this loses.

use std::sync::Arc;

use leasehold_testbed::{ReplicaSet, Witness, run};
use mongodb::bson::{DateTime, doc};

use crate::scene::{LONG, eventually, follows, pair, said, stage_on, token};

#[test]
fn on_a_standalone_mongod_candidates_poll_elect_hand_over_and_take_over() {
    run(async {
        let set = Arc::new(ReplicaSet::builder().standalone().start().await);
        let stage = stage_on(&set);
        let (a, b) = pair(&stage).await;
        let c = stage.candidate("c").start();
        follows(&c, "a").await;
        let witness = Witness::of([&a, &b, &c]);
        let warnings = [
            "no change stream, polling",
            "nothing protects an acknowledged write",
        ];
        for daemon in [&a, &b, &c] {
            for warning in warnings {
                eventually(warning, async || said(daemon, warning) >= 1).await;
            }
            assert_eq!(daemon.metric("leasehold_watch_connected").await, 0.0);
        }
        let stored = stage.stored();
        stored
            .set(doc! { "request": {
                "kind": "transfer", "token": 1_i64, "to": "c", "at": DateTime::now(),
            } })
            .await;
        c.wait_leads(LONG).await;
        assert_eq!(witness.leaders(), ["a", "c"]);
        follows(&b, "c").await;
        for daemon in [&a, &b, &c] {
            for warning in warnings {
                // Logged once, not once for each attempt.
                assert_eq!(said(daemon, warning), 1, "{warning}: {}", daemon.logs());
            }
        }
        c.term();
        c.wait_exit(LONG).await;
        // `a` is in its cooldown for a while, and another claim may lead meanwhile.
        let next = crate::scene::leader_of(&[&a, &b]).await;
        let token_before = token(next);
        let other = if next.identity() == "a" { &b } else { &a };
        follows(other, next.identity()).await;
        next.kill();
        other.wait_leads(LONG).await;
        assert_eq!(witness.reigns().len(), 4);
        assert!(token(other) > token_before);
        // A deletion is noticed without a linearizable read, which a standalone server does not
        // have.
        stored.delete().await;
        other
            .wait_until(|status| status["leader"] == false, LONG)
            .await;
        other.wait_leads(LONG).await;
        assert!(
            said(other, "lease document is older") >= 1,
            "{}",
            other.logs()
        );
        assert_eq!(witness.reigns().len(), 5);
    });
}
