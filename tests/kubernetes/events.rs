//! Goal: every change of leadership creates an Event about the pod. Each Event names the token, the
//! reason and, after a takeover, the previous holder.

use std::collections::BTreeSet;

use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams};

use crate::cluster::{Cluster, LONG, eventually, in_cluster};

async fn notes(cluster: &Cluster, pod: &str, reason: &str) -> Vec<String> {
    let events: Api<Event> = cluster.kubernetes.objects(&cluster.namespace);
    let events = events.list(&ListParams::default()).await.unwrap();
    let about = events.into_iter().filter(|event| {
        let regarding = event.regarding.as_ref().unwrap();
        regarding.name.as_deref() == Some(pod) && event.reason.as_deref() == Some(reason)
    });
    about.filter_map(|event| event.note).collect()
}

#[test]
fn elections_step_downs_and_takeovers_create_events() {
    in_cluster(async |cluster| {
        let (place_a, place_b) = (cluster.place("a").await, cluster.place("b").await);
        let a = cluster.candidate(&place_a).leading(LONG).await;
        eventually("a is elected", async || {
            notes(&cluster, "a", "LeaderElected").await == ["leads orders with token 1 (acquired)"]
        })
        .await;
        let b = cluster.candidate(&place_b).start();
        cluster.wait_label("b", "follower").await;
        a.kill();
        b.wait_leads(LONG).await;
        eventually("b took over", async || {
            !notes(&cluster, "b", "TakenOver").await.is_empty()
        })
        .await;
        let note = &notes(&cluster, "b", "TakenOver").await[0];
        assert!(note.starts_with("took over orders from a (token 1), unresponsive for "));
        assert_eq!(b.term_and_exit(LONG).await, 0);
        let stepped_down = notes(&cluster, "b", "SteppedDown").await;
        assert_eq!(
            stepped_down,
            ["lost leadership of orders (token 2): shutdown"],
            "reported before the process ended"
        );
    });
}

#[test]
fn repeated_failures_of_renewals_create_one_event() {
    in_cluster(async |cluster| {
        let place = cluster.place("a").await;
        let (proxy, daemon) = cluster.candidate_behind_proxy(&place);
        let daemon = daemon.leading(LONG).await;
        proxy.stall();
        // The daemon reports Events in order, so all earlier Events exist once this Event does.
        eventually("the lost leadership is reported", async || {
            notes(&cluster, "a", "SteppedDown").await
                == ["lost leadership of orders (token 1): deadline"]
        })
        .await;
        let unknown = "leasehold_store_operations_total{lease=\"orders\",operation=\"renew\",outcome=\"unknown\"}";
        assert!(
            daemon.metric(unknown).await >= 2.0,
            "several renewals failed"
        );
        let reported = notes(&cluster, "a", "RenewalFailing").await;
        let different: BTreeSet<_> = reported.iter().collect();
        assert_eq!(different.len(), reported.len(), "{reported:?}");
        assert!(
            reported
                .iter()
                .any(|note| note.contains("no answer within operation_timeout")),
            "{reported:?}"
        );
        let lost = "leasehold_publish_failures_total{lease=\"orders\",surface=\"event\"}";
        assert_eq!(daemon.metric(lost).await, 0.0);
    });
}
