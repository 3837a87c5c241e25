//! Goal: with the token that the chart mounts, a sidecar can create Events only about its own pod
//! and only as leasehold, and can update only the count of an existing Event. Method: installs the
//! chart on a real API server and sends each request with a pod's bound token.

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use k8s_openapi::api::core::v1::{Event as CoreEvent, Pod};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use leasehold_testbed::run;
use leasehold_testbed::wait::found;
use serde_json::{Value, json};

use crate::cluster::{Installed, RIGHTS};
use crate::end_to_end::take_away;
use crate::helm::{Objects, cluster_chart, render_chart};

/// Returns an Event with the daemon's fields, after merging `changes` into it.
fn event(pod: &Pod, name: &str, changes: &Value) -> Event {
    let mut event = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": pod.namespace()},
        "eventTime": "2026-01-02T03:04:05.000006Z",
        "reportingController": "leasehold.dev/leasehold",
        "reportingInstance": pod.name_any(),
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": pod.name_any(),
            "namespace": pod.namespace(),
            "uid": pod.uid(),
        },
        "reason": "LeaderElected",
        "action": "Acquire",
        "note": "leads",
        "type": "Normal",
    });
    merge(&mut event, changes);
    serde_json::from_value(event).unwrap()
}

fn merge(target: &mut Value, changes: &Value) {
    match (target, changes) {
        (Value::Object(target), Value::Object(changes)) => {
            for (key, change) in changes {
                merge(target.entry(key.clone()).or_insert(Value::Null), change);
            }
        }
        (target, change) => *target = change.clone(),
    }
}

fn events(installed: &Installed, client: Client) -> Api<Event> {
    Api::namespaced(client, &installed.namespace)
}

async fn create(events: &Api<Event>, event: &Event, dry_run: bool) -> Result<Event, String> {
    let parameters = PostParams {
        dry_run,
        ..PostParams::default()
    };
    let created = events.create(&parameters, event).await;
    created.map_err(|error| error.to_string())
}

async fn patch(events: &Api<Event>, name: &str, patch: Value) -> Result<Event, String> {
    let parameters = PatchParams::default();
    let patched = events.patch(name, &parameters, &Patch::Merge(patch)).await;
    patched.map_err(|error| error.to_string())
}

fn again(count: i32) -> Value {
    json!({"series": {"count": count, "lastObservedTime": "2026-01-02T03:05:05.000006Z"}})
}

/// Waits until the policy and the Role take effect. Returns the Events API, authenticated with a
/// pod's own token.
async fn reporter(installed: &Installed, pod: &Pod) -> Api<Event> {
    let events = events(installed, installed.client_of(pod).await);
    let forbidden = json!({"reportingController": "kubelet"});
    let forbidden = event(pod, "trial", &forbidden);
    found("the policy takes effect", async || {
        let refused = create(&events, &forbidden, true).await.err();
        refused.filter(|error| error.contains("ValidatingAdmissionPolicy"))
    })
    .await;
    events
}

const OWN_POD: &str = "only on the pod that its token is bound to";
const OWN_NAME: &str = "only as leasehold.dev/leasehold";
const SERIES: &str = "only the series";

#[test]
fn a_sidecar_creates_events_about_its_own_pod_as_leasehold() {
    run(async {
        for rights in RIGHTS {
            let installed = Installed::new("minimal", &[rights]).await;
            let own = installed.pod("own").await;
            let other = installed.pod("other").await;
            let events = reporter(&installed, &own).await;
            let plain = event(&own, "own.1", &json!({}));
            create(&events, &plain, false).await.unwrap();

            let bare = "no label, annotation, finalizer or owner";
            let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "own", "uid": own.uid()});
            let both = json!({"name": "other", "uid": other.uid()});
            let related = json!({"kind": "Pod", "name": "other"});
            for (changes, reason) in [
                (json!({"regarding": both}), OWN_POD),
                (json!({"regarding": {"name": "other"}}), OWN_POD),
                (json!({"regarding": {"uid": other.uid()}}), OWN_POD),
                (json!({"regarding": {"kind": "Secret"}}), OWN_POD),
                (json!({"regarding": {"apiVersion": "apps/v1"}}), OWN_POD),
                (json!({"related": related}), OWN_POD),
                (json!({"reportingController": "kubelet"}), OWN_NAME),
                // The API server itself requires this field to be unset.
                (
                    json!({"deprecatedSource": {"host": "a"}}),
                    "needs to be unset",
                ),
                (json!({"metadata": {"labels": {"a": "b"}}}), bare),
                (json!({"metadata": {"annotations": {"a": "b"}}}), bare),
                (json!({"metadata": {"finalizers": ["example.com/a"]}}), bare),
                (json!({"metadata": {"ownerReferences": [owner]}}), bare),
            ] {
                let refused = create(&events, &event(&own, "own.2", &changes), false).await;
                let refused = refused.expect_err(&changes.to_string());
                assert!(refused.contains(reason), "{changes}: {refused}");
            }
        }
    });
}

#[test]
fn a_sidecar_updates_only_the_count_of_its_own_events() {
    run(async {
        for rights in RIGHTS {
            let installed = Installed::new("minimal", &[rights]).await;
            let own = installed.pod("own").await;
            let other = installed.pod("other").await;
            let administrator = events(&installed, installed.kubernetes.client());
            let events = reporter(&installed, &own).await;
            for (pod, name, changes) in [
                (&own, "ours", json!({})),
                (&own, "kubelets", json!({"reportingController": "kubelet"})),
                (&other, "others", json!({})),
            ] {
                let there = event(pod, name, &changes);
                create(&administrator, &there, false).await.unwrap();
            }

            for count in [2, 3] {
                let counted = patch(&events, "ours", again(count)).await.unwrap();
                assert_eq!(counted.series.unwrap().count, count);
            }
            for (name, reason) in [("kubelets", OWN_NAME), ("others", OWN_POD)] {
                let refused = patch(&events, name, again(2)).await.unwrap_err();
                assert!(refused.contains(reason), "{name}: {refused}");
            }
            let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "own", "uid": own.uid()});
            for change in [
                json!({"metadata": {"labels": {"a": "b"}}}),
                json!({"metadata": {"annotations": {"a": "b"}}}),
                json!({"metadata": {"finalizers": ["example.com/a"]}}),
                json!({"metadata": {"ownerReferences": [owner]}}),
            ] {
                let refused = patch(&events, "ours", change.clone()).await;
                let refused = refused.expect_err(&change.to_string());
                assert!(refused.contains(SERIES), "{change}: {refused}");
            }
            // Either the API server or the policy refuses these changes.
            for change in [
                json!({"regarding": {"name": "other", "uid": other.uid()}}),
                json!({"reportingController": "kubelet"}),
                json!({"reportingInstance": "other"}),
                json!({"reason": "Killed"}),
                json!({"action": "Kill"}),
                json!({"note": "gone"}),
                json!({"type": "Warning"}),
                json!({"deprecatedCount": 7}),
            ] {
                let refused = patch(&events, "ours", change.clone()).await;
                refused.expect_err(&change.to_string());
            }
            let deleted = events.delete("ours", &Default::default()).await;
            assert!(deleted.unwrap_err().to_string().contains("forbidden"));
        }
    });
}

/// A workload may be an operator that creates Events about its own objects, usually in the core
/// group. A separate Role grants the permission to the pod's service account.
#[test]
fn the_policy_does_not_restrict_events_of_the_core_group() {
    run(async {
        for rights in RIGHTS {
            let installed = Installed::new("minimal", &[rights]).await;
            let own = installed.pod("own").await;
            reporter(&installed, &own).await;
            let client = installed.client_of(&own).await;
            let events: Api<CoreEvent> = Api::namespaced(client, &installed.namespace);
            let report = |name: &str| -> CoreEvent {
                let event = json!({
                    "metadata": {"name": name, "namespace": installed.namespace},
                    "involvedObject": {"apiVersion": "example.com/v1", "kind": "Shop", "name": "shop", "namespace": installed.namespace},
                    "reason": "Opened",
                    "message": "open",
                    "type": "Normal",
                    "source": {"component": "shop-operator"},
                });
                serde_json::from_value(event).unwrap()
            };
            let parameters = PostParams::default();
            // The chart's Role does not permit the creation of this Event.
            let refused = events
                .create(&parameters, &report("first"))
                .await
                .unwrap_err();
            assert!(
                refused.to_string().contains("cannot create resource"),
                "{refused}"
            );
            let account = json!([{"kind": "ServiceAccount", "name": "orders-leasehold", "namespace": installed.namespace}]);
            let rules =
                json!([{"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]}]);
            let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "operator"}, "rules": rules});
            let role_ref = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "operator"});
            let binding = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                "metadata": {"name": "operator"}, "roleRef": role_ref, "subjects": account,
            });
            let granted = format!("{role}\n---\n{binding}");
            installed
                .kubernetes
                .apply(&installed.namespace, &granted)
                .await;
            let created = found("the operator creates an Event", async || {
                match events.create(&parameters, &report("second")).await {
                    Ok(event) => Some(Ok(event)),
                    Err(error) if error.to_string().contains("cannot create resource") => None,
                    Err(error) => Some(Err(error.to_string())),
                }
            });
            created.await.unwrap_or_else(|refused| panic!("{refused}"));
        }
    });
}

/// A controller of the API server type-checks the policies' expressions against the kinds that they
/// match. The test fails on any warning, because a user of the chart could not fix the warning.
#[test]
fn the_expressions_of_the_policies_type_check() {
    run(async {
        let installed = [
            Installed::new("minimal", &[]).await,
            Installed::new("injector", &[]).await,
            Installed::new("minimal", &[RIGHTS[1]]).await,
        ];
        let cluster = Objects::parse(&render_chart(&cluster_chart(), &[]).unwrap());
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(installed[0].kubernetes.client());
        let objects = installed
            .iter()
            .flat_map(|installed| installed.objects.iter())
            .chain(cluster.iter());
        let names: Vec<_> = objects
            .filter(|object| object["kind"] == "ValidatingAdmissionPolicy")
            .map(|policy| policy["metadata"]["name"].as_str().unwrap())
            .collect();
        assert_eq!(names.len(), 5);
        for name in names {
            let checked = found("the controller has type-checked the policy", async || {
                let status = policies.get(name).await.unwrap().status?;
                status.observed_generation?;
                Some(status.type_checking)
            })
            .await;
            let warnings = checked.and_then(|checked| checked.expression_warnings);
            assert_eq!(warnings.unwrap_or_default(), [], "{name}");
        }
    });
}

#[test]
fn without_the_right_to_patch_events_counts_are_not_updated() {
    run(async {
        let installed = Installed::new("minimal", &[]).await;
        let own = installed.pod("own").await;
        let events = reporter(&installed, &own).await;
        let reported = event(&own, "own.1", &json!({}));
        create(&events, &reported, false).await.unwrap();
        patch(&events, "own.1", again(2)).await.unwrap();
        take_away(&installed, "events", "patch").await;
        found("the API server refuses the patch", async || {
            let refused = patch(&events, "own.1", again(3)).await.err()?;
            refused.contains("cannot patch resource").then_some(())
        })
        .await;
    });
}
