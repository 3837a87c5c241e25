//! Goal: after a start, a handoff, a crash and a restart, the label marks the leader's pod, and a
//! Service that selects the label stops routing to any other pod.

use crate::cluster::{LONG, in_cluster, wait_in_sync};

#[test]
fn a_service_follows_the_leader_through_handoff_crash_and_restart() {
    in_cluster(async |cluster| {
        cluster.service().await;
        let (place_a, place_b) = (cluster.place("a").await, cluster.place("b").await);
        let mut a = cluster.candidate(&place_a).leading(LONG).await;
        cluster.wait_label("a", "leader").await;
        cluster.wait_routes_to("a").await;
        let b = cluster
            .candidate(&place_b)
            .flag("--kubernetes-demote-others=true")
            .start();
        cluster.wait_label("b", "follower").await;
        wait_in_sync(&a).await;

        // The old leader changes its label before it exits. If the API server takes too long, the
        // new leader corrects the label.
        assert_eq!(a.term_and_exit(LONG).await, 0);
        cluster.wait_label("a", "follower").await;
        b.wait_leads(LONG).await;
        cluster.wait_label("b", "leader").await;
        cluster.wait_routes_to("b").await;

        // `a` restarts as a follower, and `b` crashes. `a` does not demote other pods, so the label
        // of `b` stays wrong until `b` restarts.
        a.restart_same_directory();
        b.wait_leads(LONG).await;
        cluster.wait_label("a", "follower").await;
        b.kill();
        a.wait_leads(LONG).await;
        cluster.wait_label("a", "leader").await;
        assert_eq!(
            cluster.label("b").await.as_deref(),
            Some("leader"),
            "the daemon exited"
        );
        let mut b = b;
        b.restart_same_directory();
        cluster.wait_label("b", "follower").await;
        cluster.wait_routes_to("a").await;
        assert_eq!(cluster.label("a").await.as_deref(), Some("leader"));
    });
}

#[test]
fn a_leader_that_cannot_renew_changes_its_own_label() {
    in_cluster(async |cluster| {
        let place = cluster.place("a").await;
        let (proxy, daemon) = cluster.candidate_behind_proxy(&place);
        let daemon = daemon.leading(LONG).await;
        cluster.wait_label("a", "leader").await;
        proxy.stall();
        cluster.wait_label("a", "follower").await;
        assert!(!daemon.leads());
        assert_eq!(daemon.metric("leasehold_leader").await, 0.0);
    });
}
