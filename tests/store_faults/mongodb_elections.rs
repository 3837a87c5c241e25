//! Goal: a MongoDB election at its default settings does not cost a leader
//! with default timings its leadership; it does cost one with 15/10/2, which
//! then leads again.
//! Method: sets with an election timeout of 10 s whose primary is killed,
//! frozen, or told to step down.

use std::sync::Arc;

use leasehold_testbed::{DaemonTimings, ReplicaSet, Witness, run};

use crate::scene::{LONG, leader_of, pair, renews, stage_on, token, transitioned};

async fn default_set() -> Arc<ReplicaSet> {
    Arc::new(ReplicaSet::builder().default_election().start().await)
}

#[test]
fn i1_killing_the_primary_costs_15_10_2_the_leadership_and_not_the_defaults() {
    run(async {
        let set = default_set().await;
        let defaults = stage_on(&set).timings(DaemonTimings::DEFAULT);
        let (a, b) = pair(&defaults).await;
        let fast = stage_on(&set).timings(DaemonTimings::KUBERNETES);
        let (c, d) = pair(&fast).await;
        let of_defaults = Witness::of([&a, &b]);
        let of_fast = Witness::of([&c, &d]);

        set.kill(set.primary().await);
        c.wait_until(|status| status["leader"] == false, LONG).await;
        transitioned(&c, "deadline", 1).await;
        set.primary().await;
        let again = leader_of(&[&c, &d]).await;
        assert_eq!(token(again), Some(2));
        assert_eq!(of_fast.reigns().len(), 2);

        renews(&a).await;
        assert_eq!(of_defaults.leaders(), ["a"]);
        assert_eq!(token(&a), Some(1));
    });
}

#[test]
fn freezing_the_primary_does_not_cost_the_defaults_their_leadership() {
    run(async {
        let set = default_set().await;
        let (a, b) = pair(&stage_on(&set).timings(DaemonTimings::DEFAULT)).await;
        let witness = Witness::of([&a, &b]);
        let old = set.primary().await;
        set.stop(old);
        assert_ne!(set.primary().await, old);
        renews(&a).await;
        // The deposed primary believes in itself for a moment.
        set.cont(old);
        renews(&a).await;
        renews(&a).await;
        assert_eq!(witness.leaders(), ["a"], "{}", a.logs());
        assert_eq!(token(&a), Some(1));
    });
}

#[test]
fn a_step_down_of_the_primary_does_not_cost_the_defaults_their_leadership() {
    run(async {
        let set = default_set().await;
        let (a, b) = pair(&stage_on(&set).timings(DaemonTimings::DEFAULT)).await;
        let witness = Witness::of([&a, &b]);
        set.step_down_primary().await;
        renews(&a).await;
        renews(&a).await;
        assert_eq!(witness.leaders(), ["a"]);
        assert_eq!(token(&a), Some(1));
    });
}
