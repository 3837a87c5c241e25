//! Goal: during a MongoDB election, a holder keeps its lock and a waiter keeps its position in the
//! queue. Method: steps down or kills the primary of a separate set while one job works and another
//! job waits.

use std::sync::Arc;

use leasehold_testbed::{ReplicaSet, run};
use serde_json::Value;

use crate::job::{Place, eventually};

/// Renewals every 1.5 s make the driver poll the servers instead of streaming their state.
const LEASE: &str = "--lease-duration=12s";

/// Returns the last renewals of the holder and of the waiter, or `None` until both exist.
fn renewals(place: &Place) -> Option<[String; 2]> {
    let listed: Value =
        serde_json::from_str(&place.run(&["locks", "--output=json"]).stdout).ok()?;
    let of = |list: &str| listed[0][list][0]["renewed_at"].as_str().map(str::to_owned);
    Some([of("holders")?, of("queue")?])
}

async fn elected_during(elect: impl AsyncFnOnce(&ReplicaSet)) -> (Place, [crate::job::Job; 2]) {
    let place = Place::on(Arc::new(ReplicaSet::builder().start().await));
    let until_done = format!(
        "until test -e {}; do sleep 0.05; done",
        place.path("done").display()
    );
    let holder = place.start_under("a", &[LEASE], &until_done);
    eventually("the lock is held", || {
        place.run(&["locks"]).stdout.contains("exclusive")
    });
    let waiter = place.start_empty("a", &[LEASE]);
    eventually("the second job waits", || renewals(&place).is_some());
    elect(&place.set).await;
    (place, [holder, waiter])
}

fn both_go_on((place, [holder, waiter]): (Place, [crate::job::Job; 2])) {
    let mut first = None;
    eventually("the new primary answers", || {
        first = renewals(&place);
        first.is_some()
    });
    let [held, queued] = first.expect("both entries exist");
    eventually("both renew", || {
        renewals(&place)
            .is_some_and(|[now_held, now_queued]| now_held != held && now_queued != queued)
    });
    std::fs::write(place.path("done"), "").unwrap();
    for job in [holder, waiter] {
        let output = job.output();
        assert_eq!(output.code, 0, "{output:?}");
        assert!(!output.stderr.contains("lost"), "{output:?}");
    }
}

#[test]
fn after_a_step_down_of_the_primary_the_lock_and_the_queue_are_unchanged() {
    both_go_on(run(elected_during(async |set| {
        set.step_down_primary().await;
    })));
}

#[test]
fn after_a_kill_of_the_primary_the_lock_and_the_queue_are_unchanged() {
    both_go_on(run(elected_during(async |set| {
        let old = set.primary().await;
        set.kill(old);
    })));
}
