//! Goal: a DaemonSet has one replica on each node, and one of them leads. The chart leaves out what
//! counts or spreads replicas, and an upgrade of a DaemonSet never leads to two leaders. Method:
//! parses helm's output, and runs helm on a real API server.

use k8s_openapi::api::apps::v1::DaemonSet;
use leasehold_testbed::{assert_contains, run};
use serde_json::json;

use crate::helm::{Objects, assert_selects, refused};
use crate::release::Place;

const DAEMON_SET: &str = r#"workload.kind="DaemonSet""#;

#[test]
fn a_daemon_set_follows_its_values() {
    let objects = Objects::of("daemon-set", &[]);
    let spec = &objects.one("DaemonSet")["spec"];
    assert_eq!(spec["minReadySeconds"], 5);
    let limits = json!({"maxUnavailable": 0, "maxSurge": 1});
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": limits});
    assert_eq!(spec["updateStrategy"], strategy);
    assert_eq!(objects.pod()["nodeSelector"]["pool"], "edge");
    let labels = &objects.template()["metadata"]["labels"];
    assert_selects(&spec["selector"]["matchLabels"], labels);
    assert_selects(
        &objects.one("NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        labels,
    );
    assert_eq!(spec.get("replicas"), None);
    assert_eq!(objects.pod().get("topologySpreadConstraints"), None);
    // A drain does not evict these pods, so a budget would have no effect.
    assert!(objects.find("PodDisruptionBudget").is_none());
    let test = objects.one("Pod").to_string();
    assert!(!test.contains("--expect"), "{test}");

    let waits = r#"daemonSet.updateStrategy.type="OnDelete""#;
    let waits = Objects::of("daemon-set", &[waits]);
    let strategy = &waits.one("DaemonSet")["spec"]["updateStrategy"];
    assert_eq!(*strategy, json!({"type": "OnDelete"}));
}

#[test]
fn the_pods_of_a_daemon_set_have_the_sidecar_and_rights_of_a_deployment() {
    let (deployment, set) = (
        Objects::of("minimal", &[]),
        Objects::of("minimal", &[DAEMON_SET]),
    );
    assert_eq!(set.sidecar(), deployment.sidecar());
    assert_eq!(set.workload(), deployment.workload());
    assert_eq!(
        set.template()["metadata"],
        deployment.template()["metadata"]
    );
    for kind in ["ServiceAccount", "Role", "ValidatingAdmissionPolicy"] {
        assert_eq!(set.one(kind), deployment.one(kind), "{kind}");
    }
    let supervised = Objects::of("supervisor", &[DAEMON_SET]);
    let runs = supervised.workload()["args"].as_array().unwrap();
    assert!(runs.contains(&json!("/orders")), "{runs:?}");
}

#[test]
fn values_without_effect_on_a_daemon_set_are_refused() {
    refused(
        r#"
        daemon-set: deployment.replicas=0
            deployment.replicas is 0, and workload.kind is DaemonSet
            leave it out

        daemon-set: deployment.strategy.type="Recreate"
            deployment.strategy is for a Deployment, and workload.kind is DaemonSet
            set daemonSet.updateStrategy

        daemon-set: statefulSet.serviceName="mine"
            statefulSet.serviceName is for a StatefulSet, and workload.kind is DaemonSet

        daemon-set: daemonSet.updateStrategy.type="Recreate"
            '/daemonSet/updateStrategy/type'

        daemon-set: daemonSet.strategy={}
            'strategy' not allowed
        "#,
    );
}

#[test]
fn an_upgrade_to_another_lease_is_refused_until_the_daemon_set_is_deleted() {
    run(async {
        let place = Place::new().await;
        let kind = ["--set", "workload.kind=DaemonSet"];
        place.chart("install", "orders", &kind).unwrap();
        let with = |more: &'static str| [&kind[..], &["--set", more]].concat();
        place
            .chart("upgrade", "orders", &with("workload.args={a}"))
            .unwrap();
        let renamed = with("leasehold.leaseName=else");
        let refused = place.chart("upgrade", "orders", &renamed).unwrap_err();
        let remedy = "delete the DaemonSet and wait for the end of its pods";
        assert_contains(&refused, "during the update two would lead");
        assert_contains(&refused, remedy);
        let relabelled = with("leasehold.kubernetes.labelPrefix=else.example");
        let refused = place.chart("upgrade", "orders", &relabelled).unwrap_err();
        assert_contains(&refused, "a Service would find no leader");
        assert_contains(&refused, remedy);
        // A replacement by a Deployment with another lease is refused too.
        let replaced = ["--set", "leasehold.leaseName=else"];
        let refused = place.chart("upgrade", "orders", &replaced).unwrap_err();
        assert_contains(&refused, remedy);
        place.delete::<DaemonSet>("orders").await;
        place.chart("upgrade", "orders", &renamed).unwrap();
    });
}
