//! Goal: the publisher repairs a label that another client edits or removes, without flooding the
//! API server: while the label is correct, the publisher sends at most one request per interval.
//! Method: runs the publisher without a daemon, with a short repair interval.

use std::time::{Duration, Instant};

use leasehold::clock::boot_now;

use crate::cluster::{LONG, eventually, in_cluster};
use crate::publisher::{Publisher, follower, leader};

const REPAIR: Duration = Duration::from_millis(400);

#[test]
fn an_edited_or_removed_label_is_repaired() {
    in_cluster(async |cluster| {
        let place = cluster.place("a").await;
        let publisher = Publisher::start(&cluster, &place, REPAIR);
        cluster.wait_label("a", "follower").await;
        for damage in [Some("leader"), None, Some("x")] {
            cluster.interfere("a", damage).await;
            let took = cluster.wait_label("a", "follower").await;
            println!("{damage:?}: repaired after {took:?}");
        }
        publisher.set(leader(boot_now() + LONG));
        cluster.wait_label("a", "leader").await;
        cluster.interfere("a", None).await;
        cluster.wait_label("a", "leader").await;
    });
}

#[test]
fn the_label_changes_at_the_deadline_although_nothing_is_published() {
    in_cluster(async |cluster| {
        let place = cluster.place("a").await;
        // The repair interval is longer than the test, so the publisher repairs nothing.
        let publisher = Publisher::start(&cluster, &place, 10 * LONG);
        // A promotion now would cancel the first write and count as a failure, so the test waits.
        eventually("the label is in sync", async || publisher.in_sync()).await;
        let authority = Duration::from_secs(15);
        let begin = Instant::now();
        publisher.set(leader(boot_now() + authority));
        cluster.wait_label("a", "leader").await;
        cluster.wait_label("a", "follower").await;
        let turned = begin.elapsed();
        println!("the label said leader for {turned:?}, with an authority of {authority:?}");
        assert!(turned >= authority, "{turned:?}");
        assert_eq!(publisher.failures(), 0);
    });
}

#[test]
fn nothing_is_written_while_nothing_changes() {
    in_cluster(async |cluster| {
        let place = cluster.place("a").await;
        let publisher = Publisher::start(&cluster, &place, LONG);
        cluster.wait_label("a", "follower").await;
        eventually("the label is in sync", async || publisher.in_sync()).await;
        // Publishing an unchanged status, as each renewal does, does not write the label.
        cluster.interfere("a", Some("x")).await;
        for _ in 0..20 {
            publisher.set(follower());
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        assert_eq!(
            cluster.label("a").await.as_deref(),
            Some("x"),
            "not yet due"
        );
    });
}
