//! Goal: with the token that the chart mounts, a sidecar can write only the label of its own pod.
//! Method: installs the chart on a real API server and sends each patch with a pod's bound token.

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::authorization::v1::{SelfSubjectRulesReview, SelfSubjectRulesReviewSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use leasehold_testbed::wait::found;
use leasehold_testbed::{assert_contains, run};
use serde_json::{Value, json};

use crate::cluster::{self, Installed, RIGHTS, patch_status};

/// Waits until the policy refuses a forbidden patch.
pub(crate) async fn in_force(pods: &Api<Pod>, name: &str) {
    let forbidden = json!({"metadata": {"annotations": {"trial": "yes"}}});
    found("the policy takes effect", async || {
        let tried = patch_status(pods, name, forbidden.clone(), true).await;
        let refused = tried.err();
        refused.filter(|error| error.contains("ValidatingAdmissionPolicy"))
    })
    .await;
}

pub(crate) fn labelled(key: &str, value: impl Into<Value>) -> Value {
    json!({"metadata": {"labels": {key: value.into()}}})
}

#[test]
fn a_sidecar_changes_only_the_label_of_its_own_pod() {
    run(async {
        for rights in RIGHTS {
            let alone = "leasehold.kubernetes.demoteOthers=false";
            let installed = Installed::new("minimal", &[rights, alone]).await;
            let own = installed.pod("own").await;
            let other = installed.pod("other").await;
            let pods = installed.pods(installed.client_of(&own).await);
            in_force(&pods, "own").await;
            let label = installed.label();

            for value in ["leader", "follower", "leader"] {
                let mut patch = labelled(&label, value);
                patch["metadata"]["uid"] = json!(own.uid().unwrap());
                let patched = patch_status(&pods, "own", patch, false).await.unwrap();
                assert_eq!(patched.labels()[&label], value);
            }

            let name = "app.kubernetes.io/name";
            let (noted, held) = (json!({"a": "b"}), ["example.com/a"]);
            let address = json!({"podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}]});
            let ready = json!({"type": "Ready", "status": "True"});
            let not_its_label = &*format!("no label but {label}");
            for (patch, reason) in [
                (labelled(&label, "king"), "is leader or follower"),
                (labelled(&label, Value::Null), "is leader or follower"),
                (labelled("leasehold.dev/billing", "leader"), not_its_label),
                (labelled(name, "else"), not_its_label),
                (labelled(name, Value::Null), not_its_label),
                (json!({"metadata": {"annotations": noted}}), "no annotation"),
                (json!({"metadata": {"finalizers": held}}), "no annotation"),
                (json!({"status": address}), "no status"),
                (json!({"status": {"conditions": [ready]}}), "no status"),
            ] {
                let refused = patch_status(&pods, "own", patch.clone(), false).await;
                let refused = refused.expect_err(&patch.to_string());
                assert!(refused.contains(reason), "{patch}: {refused}");
            }

            let refused = patch_status(&pods, "other", labelled(&label, "leader"), false).await;
            let refused = refused.unwrap_err();
            assert_contains(&refused, "only the pod that its token is bound to");

            // The API server itself refuses changes to owners through the status subresource.
            let owner =
                json!({"apiVersion": "v1", "kind": "Pod", "name": "other", "uid": other.uid()});
            let patch = json!({"metadata": {"ownerReferences": [owner]}});
            let owned = patch_status(&pods, "own", patch, false).await;
            assert!(owned.map_or(true, |pod| pod.owner_references().is_empty()));

            let image = json!({"spec": {"containers": [{"name": "workload", "image": "evil"}]}});
            let parameters = PatchParams::default();
            let image = Patch::Strategic(image);
            let refused = pods.patch("own", &parameters, &image).await;
            assert!(refused.unwrap_err().to_string().contains("forbidden"));
            // The API server refuses or ignores changes to the spec through the status subresource.
            let patched = pods.patch_status("own", &parameters, &image).await;
            let images = |pod: Pod| pod.spec.unwrap().containers[0].image.clone().unwrap();
            assert!(patched.map_or(true, |pod| images(pod) != "evil"));
        }
    });
}

#[test]
fn the_pods_of_the_deployment_are_admitted_under_the_restricted_level() {
    run(async {
        let installed = Installed::new("minimal", &[]).await;
        let pods = installed.pods(installed.kubernetes.client());
        found("the replicas exist", async || {
            let found = pods.list(&ListParams::default()).await.ok()?;
            let owned = |pod: &&Pod| {
                let mut owners = pod.owner_references().iter();
                owners.any(|owner| owner.kind == "ReplicaSet")
            };
            (found.items.iter().filter(owned).count() == 2).then_some(())
        })
        .await;
    });
}

/// A policy restricts all pods that use its service account.
#[test]
fn if_two_releases_share_an_account_the_error_names_the_other_release() {
    run(async {
        let installed = Installed::new("minimal", &[]).await;
        let own = installed.pod("own").await;
        let shared = [
            "fullnameOverride=\"second\"",
            "leasehold.serviceAccount={\"create\":false,\"name\":\"orders-leasehold\"}",
        ];
        let second = cluster::render("minimal", &installed.namespace, &shared);
        installed
            .kubernetes
            .apply(&installed.namespace, &second)
            .await;
        let pods = installed.pods(installed.client_of(&own).await);
        let label = installed.label();
        let refused = found("the second policy takes effect", async || {
            let led = patch_status(&pods, "own", labelled(&label, "leader"), true).await;
            led.err().filter(|refused| refused.contains("second"))
        })
        .await;
        let named = "the account orders-leasehold belongs to the release second: give another release an account of its own";
        assert_contains(&refused, named);
    });
}

#[test]
fn a_token_that_is_not_bound_to_a_pod_changes_nothing() {
    run(async {
        for rights in RIGHTS {
            for demotes in ["true", "false"] {
                let demotion = format!("leasehold.kubernetes.demoteOthers={demotes}");
                let installed = Installed::new("minimal", &[rights, &demotion]).await;
                refuses_an_unbound_token(&installed).await;
            }
        }
    });
}

async fn refuses_an_unbound_token(installed: &Installed) {
    let own = installed.pod("own").await;
    let accounts: Api<ServiceAccount> = installed.kubernetes.objects(&installed.namespace);
    let request = TokenRequest {
        spec: TokenRequestSpec::default(),
        ..TokenRequest::default()
    };
    let answer = accounts
        .create_token_request("orders-leasehold", &PostParams::default(), &request)
        .await
        .unwrap();
    let mut credentials = installed.kubernetes.credentials(&own).await;
    let bound = installed.pods(installed.kubernetes.client_as(&credentials));
    in_force(&bound, "own").await;
    credentials.publish(&answer.status.unwrap().token);
    let unbound = installed.pods(installed.kubernetes.client_as(&credentials));
    let label = installed.label();
    installed.pod("other").await;
    let administrator = installed.pods(installed.kubernetes.client());
    let led = patch_status(&administrator, "other", labelled(&label, "leader"), false).await;
    led.unwrap();
    for (pod, value) in [
        ("own", "leader"),
        ("other", "leader"),
        ("other", "follower"),
    ] {
        let refused = patch_status(&unbound, pod, labelled(&label, value), false).await;
        let refused = refused.unwrap_err();
        assert!(
            refused.contains("a sidecar changes only"),
            "{pod} {value}: {refused}"
        );
    }
}

#[test]
fn with_demote_others_a_leader_may_only_remove_the_label_of_others() {
    run(async {
        for rights in RIGHTS {
            let demoting = "leasehold.kubernetes.demoteOthers=true";
            let installed = Installed::new("minimal", &[rights, demoting]).await;
            let own = installed.pod("own").await;
            installed.pod("other").await;
            let pods = installed.pods(installed.client_of(&own).await);
            in_force(&pods, "own").await;
            let label = installed.label();
            let administrator = installed.pods(installed.kubernetes.client());

            let leading = patch_status(&pods, "other", labelled(&label, "leader"), false).await;
            let refused = leading.unwrap_err();
            assert!(refused.contains("from leader to follower"), "{refused}");
            let unlabelled =
                patch_status(&pods, "other", labelled(&label, "follower"), false).await;
            assert!(unlabelled.is_err());

            let given =
                patch_status(&administrator, "other", labelled(&label, "leader"), false).await;
            given.unwrap();
            let selector = ListParams::default().labels(&format!("{label}=leader"));
            let found = pods.list(&selector).await.unwrap();
            assert_eq!(found.items.len(), 1);
            let mut with_status = labelled(&label, "follower");
            with_status["status"] = json!({"podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}]});
            let refused = patch_status(&pods, "other", with_status, false).await;
            assert!(refused.unwrap_err().contains("no status"));
            let demoted = patch_status(&pods, "other", labelled(&label, "follower"), false).await;
            assert_eq!(demoted.unwrap().labels()[&label], "follower");
        }
    });
}

/// Returns the token's rights in the namespace, except the rights that every user has.
pub(crate) async fn rights(client: Client, namespace: &str) -> Vec<String> {
    let reviews: Api<SelfSubjectRulesReview> = Api::all(client);
    let review = SelfSubjectRulesReview {
        spec: SelfSubjectRulesReviewSpec {
            namespace: Some(namespace.to_owned()),
        },
        ..SelfSubjectRulesReview::default()
    };
    let answer = reviews
        .create(&PostParams::default(), &review)
        .await
        .unwrap();
    let mut rights = Vec::new();
    for rule in answer.status.unwrap().resource_rules {
        for resource in rule.resources.unwrap_or_default() {
            if !resource.starts_with("selfsubject") {
                rights.extend(rule.verbs.iter().map(|verb| format!("{verb} {resource}")));
            }
        }
    }
    rights.sort();
    rights
}

const MARKS: [&str; 3] = ["demote labels", "report events", "set labels"];

#[test]
fn the_token_has_only_the_rights_of_the_role() {
    run(async {
        let quiet = "leasehold.kubernetes.events=false";
        let alone = "leasehold.kubernetes.demoteOthers=false";
        let [create, list] = ["create events", "list pods"];
        let [count, label] = ["patch events", "patch pods/status"];
        for (change, expected) in [
            ("deployment.replicas=2", &[create, list, count, label][..]),
            (quiet, &[list, label]),
            (alone, &[create, count, label]),
        ] {
            for source in RIGHTS {
                let installed = Installed::new("minimal", &[source, change]).await;
                let pod = installed.pod("own").await;
                let client = installed.client_of(&pod).await;
                found(&format!("{source} {change}"), async || {
                    let mut found = rights(client.clone(), &installed.namespace).await;
                    // The verbs that the cluster's policies use to select accounts.
                    found.retain(|right| !MARKS.contains(&right.as_str()));
                    (found == expected).then_some(())
                })
                .await;
            }
        }
    });
}
