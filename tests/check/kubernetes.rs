//! Goal: the command reports a right that a pod's token lacks, and a missing policy, and never
//! changes an object. Method: queries a real API server.

use kube::ResourceExt;
use leasehold_testbed::kubernetes::Place;
use leasehold_testbed::wait::eventually;
use leasehold_testbed::{Kubernetes, run};

use crate::scene::{Answer, Check, Scene};

/// The part of the chart's policy that lets a sidecar change only labels.
const POLICY: &str = "
kind: ValidatingAdmissionPolicy
apiVersion: admissionregistration.k8s.io/v1
metadata: {name: check}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [UPDATE], resources: [pods/status]}]
  validations:
  - expression: object.metadata.?annotations.orValue({}) == oldObject.metadata.?annotations.orValue({})
";

fn binding(namespace: &str) -> String {
    format!(
        "
kind: ValidatingAdmissionPolicyBinding
apiVersion: admissionregistration.k8s.io/v1
metadata: {{name: check}}
spec:
  policyName: check
  validationActions: [Deny]
  matchResources: {{namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {namespace}}}}}}}
"
    )
}

/// Sets the environment of a pod. MongoDB is unreachable, but the checks of the API server still
/// run.
fn in_pod(scene: &Scene, kubernetes: &Kubernetes, place: &Place) -> Check {
    let directory = place.credentials.directory().display();
    let check = scene
        .check("mongodb://127.0.0.1:1/?replicaSet=rs0")
        .flag("--timeout=5s")
        .flag("--kubernetes-enabled=on")
        .flag(&format!("--kubernetes-credentials={directory}"))
        .env("POD_NAME", place.pod.name_any())
        .env("POD_UID", place.pod.uid().unwrap());
    let environment = kubernetes.environment().into_iter();
    environment.fold(check, |check, (name, value)| check.env(&name, value))
}

fn rules(answer: &Answer, result: &str) -> Vec<String> {
    let access = answer.all("access").into_iter();
    let of = access.filter(|check| check["result"] == result);
    of.map(|check| check["subject"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn the_rights_of_the_chart_suffice_and_its_policy_is_recognized() {
    run(async {
        let kubernetes = Kubernetes::shared().await;
        let namespace = kubernetes.namespace().await;
        let scene = Scene::new().await;
        let place = kubernetes.place(&namespace, "a", "orders").await;
        let pods = kubernetes.objects::<k8s_openapi::api::core::v1::Pod>(&namespace);
        let check = || in_pod(&scene, &kubernetes, &place);

        let none = check().flag("--kubernetes-demote-others=true").run().await;
        let all = [
            "patch pods/status",
            "create events.events.k8s.io",
            "patch events.events.k8s.io",
            "list pods",
        ];
        assert_eq!(rules(&none, "failed"), all);
        none.says("label", "skipped", "patch pods/status is not granted");
        assert!(
            none.stdout.contains("must allow list pods"),
            "{}",
            none.stdout
        );
        none.says("token", "ok", "bound to pod a");

        kubernetes.grant(&namespace).await;
        let before = pods.get("a").await.unwrap();
        // A new Role takes effect only after a moment.
        eventually("the rights are granted", async || {
            rules(&check().run().await, "ok") == all[..3]
        })
        .await;
        let open = check().run().await;
        open.says("label", "ok", "dry run");
        open.says(
            "admission-policy",
            "warning",
            "install the ValidatingAdmissionPolicy",
        );
        assert!(
            open.one("api-server")["p50_ms"].as_f64() > Some(0.0),
            "{}",
            open.stdout
        );
        assert!(!open.stdout.contains(place.credentials.token().trim()));

        kubernetes.apply(&namespace, POLICY).await;
        kubernetes.apply(&namespace, &binding(&namespace)).await;
        eventually("the policy is enforced", async || {
            check().run().await.one("admission-policy")["result"] == "ok"
        })
        .await;
        let after = pods.get("a").await.unwrap();
        assert_eq!(after.metadata, before.metadata, "dry runs store nothing");
    });
}

#[test]
fn rejected_tokens_and_unreachable_servers_are_reported() {
    run(async {
        let kubernetes = Kubernetes::shared().await;
        let namespace = kubernetes.namespace().await;
        let scene = Scene::new().await;
        let mut place = kubernetes.place(&namespace, "a", "orders").await;
        place.credentials.publish("not.a.token");
        let answer = in_pod(&scene, &kubernetes, &place).run().await;
        answer.says("token", "failed", "does not accept the token");
        let away = in_pod(&scene, &kubernetes, &place).env("KUBERNETES_SERVICE_PORT", "1");
        away.run()
            .await
            .says("token", "failed", "cannot be reached");

        let outside = scene.check("mongodb://127.0.0.1:1/").flag("--timeout=1s");
        let outside = outside.run().await;
        outside.says("pod", "skipped", "not in a Kubernetes cluster");
        let required = scene.check("mongodb://127.0.0.1:1/").flag("--timeout=1s");
        let required = required.flag("--kubernetes-enabled=on").run().await;
        required.says("pod", "failed", "KUBERNETES_SERVICE_HOST");
    });
}
