//! Goal: with `demote_others`, the pod of an exited daemon does not keep the label `leader`. A new
//! leader never changes the labels of other leases.

use http::Request;
use serde_json::Value;

use crate::cluster::{LONG, in_cluster};

#[test]
fn a_new_leader_removes_the_label_of_a_lost_leader() {
    in_cluster(async |cluster| {
        cluster.service().await;
        let (place_a, place_b) = (cluster.place("a").await, cluster.place("b").await);
        let a = cluster.candidate(&place_a).leading(LONG).await;
        cluster.wait_label("a", "leader").await;
        // The label of another lease, which must stay on the killed daemon's pod.
        let other = "leasehold.dev/other";
        cluster.set_label("a", other, Some("leader")).await;
        let b = cluster
            .candidate(&place_b)
            .flag("--kubernetes-demote-others=true")
            .start();
        cluster.wait_label("b", "follower").await;
        assert_eq!(cluster.label("a").await.as_deref(), Some("leader"));
        a.kill();
        b.wait_leads(LONG).await;
        cluster.wait_label("b", "leader").await;
        cluster.wait_label("a", "follower").await;
        cluster.wait_routes_to("b").await;
        let pod = cluster.pods().get("a").await.unwrap();
        let labels = pod.metadata.labels.unwrap();
        assert_eq!(labels[other], "leader");
    });
}

/// Checks that a real API server answers as the publisher's unit tests assume.
#[test]
fn if_no_pod_has_the_label_the_list_is_null() {
    in_cluster(async |cluster| {
        let path = format!(
            "/api/v1/namespaces/{}/pods?limit=20&labelSelector=leasehold.dev%2Forders%3Dleader",
            cluster.namespace
        );
        let metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        let request = Request::get(path).header("accept", metadata);
        let request = request.body(Vec::new()).unwrap();
        let answer = cluster.kubernetes.client().request_text(request).await;
        let answer: Value = serde_json::from_str(&answer.unwrap()).unwrap();
        assert_eq!(answer["kind"], "PartialObjectMetadataList", "{answer}");
        let items = answer.get("items");
        assert!(items.is_some_and(Value::is_null), "{answer}");
    });
}
