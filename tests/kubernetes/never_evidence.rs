//! Goal: nothing that Kubernetes or the network reports about a leader shortens the wait for its
//! expiry (I1), because its process may still run. Method: the leader is frozen, so that it still
//! holds the lease and would act again; the standby sees the evidence, and may list pods.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, Patch, PatchParams};
use leasehold_testbed::{DaemonTimings, Proxy};
use serde_json::{Value, json};

use crate::cluster::{Cluster, LONG, Place, in_cluster};

/// Freezes the leader, shows the evidence, and asserts that the standby waited for the expiry.
fn assert_never_evidence(show: impl AsyncFnOnce(&Cluster, &Proxy, &str)) {
    in_cluster(async |cluster| {
        let node = cluster.kubernetes.node().await;
        let on_node = async |name: &str| -> Place {
            let labels = [("app", "orders")];
            let (kubernetes, namespace) = (&cluster.kubernetes, &cluster.namespace);
            let pod = kubernetes.pod_on(&node, namespace, name, &labels, "default");
            kubernetes.place_of(pod.await).await
        };
        let (place_a, place_b) = (on_node("a").await, cluster.place("b").await);
        let (proxy, a) = cluster.candidate_behind_proxy(&place_a);
        let a = a.leading(LONG).await;
        cluster.wait_label("a", "leader").await;
        let b = cluster.candidate(&place_b);
        let b = b.flag("--kubernetes-demote-others=true");
        let b = b.following("a", LONG).await;
        a.stop();
        let renewed = DaemonTimings::DEMO.sent_ns(&a.status());
        show(&cluster, &proxy, &node).await;
        let status = b.wait_leads(LONG).await;
        DaemonTimings::DEMO.assert_waited_since(renewed, &status);
    });
}

async fn report(pods: &Api<Pod>, status: &Value) {
    let patch = Patch::Merge(json!({ "status": status }));
    let parameters = PatchParams::default();
    pods.patch_status("a", &parameters, &patch).await.unwrap();
}

#[test]
fn i1_a_deleted_pod_is_never_evidence() {
    assert_never_evidence(async |cluster, _, _| {
        cluster.kubernetes.delete_pod(&cluster.namespace, "a").await;
    });
}

#[test]
fn i1_a_failed_pod_with_terminated_containers_is_never_evidence() {
    assert_never_evidence(async |cluster, _, _| {
        let terminated = json!({ "exitCode": 137, "reason": "OOMKilled" });
        let container = json!({
            "name": "leasehold", "image": "x", "imageID": "x", "ready": false, "restartCount": 1,
            "state": { "terminated": terminated },
        });
        let status = json!({ "phase": "Failed", "containerStatuses": [container] });
        report(&cluster.pods(), &status).await;
    });
}

#[test]
fn i1_a_node_that_is_not_ready_is_never_evidence() {
    assert_never_evidence(async |cluster, _, node| {
        let not_ready = json!([{ "type": "Ready", "status": "Unknown" }]);
        let nodes: Api<Node> = Api::all(cluster.kubernetes.client());
        let patch = Patch::Merge(json!({ "status": { "conditions": not_ready } }));
        let parameters = PatchParams::default();
        nodes.patch_status(node, &parameters, &patch).await.unwrap();
        report(&cluster.pods(), &json!({ "conditions": not_ready })).await;
    });
}

/// Once the connections are closed, `currentOp` of MongoDB does not list them either.
#[test]
fn i1_closed_connections_are_never_evidence() {
    assert_never_evidence(async |_, proxy, _| proxy.cut());
}
