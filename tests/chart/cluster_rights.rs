//! Goal: with `leasehold.rights: cluster`, a release creates only objects that a namespace
//! administrator may create, and the policies of the chart leasehold-cluster restrict all users
//! to whom this administrator can grant the ClusterRoles. Method: compares renderings, and sends
//! requests of various users to a real API server. policy.rs and event_policy.rs test the policies'
//! rules.

use std::process::Command;

use http::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::PostParams;
use leasehold_testbed::wait::found;
use leasehold_testbed::{assert_contains, run};
use serde_json::{Value, json};

use crate::cluster::{Installed, RIGHTS, foreign_pod, patch_status};
use crate::helm::{INSTALLATIONS, Objects, cluster_chart, refused, render_chart};
use crate::policy::{in_force, labelled};
use crate::policy_cost::OPERATOR;

const CLUSTER: &str = RIGHTS[1];

/// Returns the kinds of the bound roles, and their names.
fn bound(objects: &Objects) -> Vec<String> {
    let bindings = objects.iter().filter(|it| it["kind"] == "RoleBinding");
    let role = |it: &Value| format!("{} {}", it["roleRef"]["kind"], it["roleRef"]["name"]);
    let roles = bindings.map(|it| role(it).replace('"', ""));
    roles.collect()
}

#[test]
fn a_release_only_binds_the_roles_of_the_enabled_features() {
    let [label, demote, events, all] = ["", "-demote", "-events", "-demote-events"]
        .map(|suffix| format!("ClusterRole leasehold-label{suffix}"));
    let quiet = "leasehold.kubernetes.events=false";
    let alone = "leasehold.kubernetes.demoteOthers=false";
    let rule = r#"leasehold.rbac.extraRules=[{"apiGroups":[""],"resources":["configmaps"],"verbs":["get"]}]"#;
    let own = "Role orders-leasehold".to_owned();
    for (changes, expected) in [
        (&[][..], &[&all][..]),
        (&[quiet], &[&demote]),
        (&[alone], &[&events]),
        (&[alone, quiet], &[&label]),
        (&[quiet, rule], &[&demote, &own]),
        (&["leasehold.kubernetes.enabled=false"], &[]),
        (&["leasehold.kubernetes.enabled=false", rule], &[&own]),
        (&["leasehold.rbac.create=false"], &[]),
    ] {
        let objects = Objects::of("minimal", &[&[CLUSTER], changes].concat());
        assert_eq!(bound(&objects).iter().collect::<Vec<_>>(), expected);
        let cluster_scoped = objects.find("ValidatingAdmissionPolicy");
        assert!(cluster_scoped.is_none(), "{changes:?}");
        if let Some(role) = objects.find("Role") {
            assert_eq!(role["rules"].as_array().unwrap().len(), 1, "{role}");
        }
    }
    // A lock has no permission.
    assert!(bound(&Objects::of("cron-job", &[CLUSTER])).is_empty());
    let wrong = r#"minimal: leasehold.rights="namespace""#;
    refused(&format!("{wrong}\n/leasehold/rights"));
}

/// The API server evaluates all conditions of a policy, but stops within an expression. With one
/// condition, it asks an authorization webhook nothing about users whom the first parts exempt.
#[test]
fn each_policy_has_one_condition() {
    let rendered = Objects::parse(&render_chart(&cluster_chart(), &[]).unwrap());
    let policies: Vec<_> = rendered
        .iter()
        .filter(|object| object["kind"] == "ValidatingAdmissionPolicy")
        .collect();
    assert_eq!(policies.len(), 2);
    for policy in policies {
        let conditions = policy["spec"]["matchConditions"].as_array().unwrap();
        assert_eq!(conditions.len(), 1, "{policy}");
    }
}

/// The match condition exempts a write to the own pod if all other validations admit the write, so
/// only the first validations may depend on whether the pod is the own pod.
#[test]
fn only_the_first_two_validations_restrict_writes_to_other_pods_alone() {
    let rendered = Objects::parse(&render_chart(&cluster_chart(), &[]).unwrap());
    let policy = rendered.named("ValidatingAdmissionPolicy", "labels.leasehold.dev");
    let spec = &policy["spec"];
    let condition = spec["matchConditions"][0]["expression"].as_str().unwrap();
    let validations = spec["validations"].as_array().unwrap().iter();
    for (number, validation) in validations.enumerate() {
        let expression = validation["expression"].as_str().unwrap();
        assert_eq!(expression.starts_with("variables.own ||"), number < 2);
        let expression = expression
            .replace("variables.ours", "ours")
            .replace(
                "variables.labelsBefore",
                "oldObject.metadata.?labels.orValue({})",
            )
            .replace("variables.labels", "object.metadata.?labels.orValue({})");
        assert_eq!(condition.contains(&format!("({expression})")), number >= 2);
    }
}

/// A change of `leasehold.rights` restarts no pod.
#[test]
fn the_source_of_the_rights_does_not_change_the_pods() {
    // The release of this installation has no rights of its own.
    let others = INSTALLATIONS.iter().filter(|name| **name != "unlabelled");
    for installation in others {
        let [own, cluster] = RIGHTS.map(|rights| {
            let objects = Objects::of(installation, &[rights]);
            let rights = ["Role", "RoleBinding"];
            let others = objects.iter().filter(|object| {
                let kind = object["kind"].as_str().unwrap();
                !kind.starts_with("ValidatingAdmissionPolicy") && !rights.contains(&kind)
            });
            others.cloned().collect::<Vec<_>>()
        });
        assert_eq!(own, cluster, "{installation}");
    }
}

#[test]
fn the_binding_role_grants_only_the_sidecars_roles() {
    let objects = Objects::parse(&render_chart(&cluster_chart(), &[]).unwrap());
    let roles: Vec<_> = objects
        .iter()
        .filter(|object| object["kind"] == "ClusterRole")
        .collect();
    let names = |role: &&Value| role["metadata"]["name"].clone();
    let bind = objects.named("ClusterRole", "leasehold-bind");
    let bindable = bind["rules"][0]["resourceNames"].as_array().unwrap();
    let sidecars: Vec<_> = roles[..4].iter().map(names).collect();
    assert_eq!(*bindable, sidecars);
    assert_eq!(bind["rules"].as_array().unwrap().len(), 1);
    assert_eq!(bind["rules"][0]["verbs"], json!(["bind"]));
    let aggregated = "rbac.authorization.k8s.io/aggregate-to-admin";
    assert_eq!(bind["metadata"]["labels"][aggregated], "true");
    let none = render_chart(&cluster_chart(), &["--set", "aggregateToAdmin=false"]).unwrap();
    assert!(!none.contains(aggregated));
    // The policies exempt accounts with the verb `update`.
    assert!(!json!(roles).to_string().contains("update"));
    let labelled = ["--set-json", r#"commonLabels={"team":"platform"}"#];
    let labelled = Objects::parse(&render_chart(&cluster_chart(), &labelled).unwrap());
    for object in labelled.iter() {
        assert_eq!(object["metadata"]["labels"]["team"], "platform", "{object}");
    }
}

/// Patches a pod's status as the user and groups.
async fn patch_as(
    installed: &Installed,
    name: &str,
    [user, group]: [&str; 2],
    patch: &Value,
) -> Result<String, String> {
    let pods = format!("/api/v1/namespaces/{}/pods", installed.namespace);
    let request = Request::patch(format!("{pods}/{name}/status"))
        .header("Content-Type", "application/merge-patch+json")
        .header("Impersonate-User", user)
        .header("Impersonate-Group", group)
        .body(patch.to_string().into_bytes())
        .unwrap();
    let answered = installed.kubernetes.client().request_text(request).await;
    answered.map_err(|error| error.to_string())
}

fn binding(name: &str, role: &str, subject: &Value) -> String {
    let group = "rbac.authorization.k8s.io";
    json!({
        "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role}, "subjects": [subject],
    })
    .to_string()
}

/// Creates a pod of the namespace's default service account that does not run leasehold.
async fn without_lease(installed: &Installed, name: &str) -> Pod {
    let mut spec = installed.objects.pod().clone();
    spec["serviceAccountName"] = json!("default");
    spec["initContainers"] = json!([]);
    spec["nodeName"] = json!("node-1");
    let pods = installed.pods(installed.kubernetes.client());
    let pod = foreign_pod(name, &spec);
    pods.create(&PostParams::default(), &pod).await.unwrap()
}

/// A namespace administrator may bind the ClusterRoles to any user.
#[test]
fn all_users_with_the_role_are_restricted_except_nodes_and_administrators() {
    run(async {
        let installed = Installed::new("minimal", &[CLUSTER]).await;
        let (kubernetes, namespace) = (&installed.kubernetes, &installed.namespace);
        let elsewhere = kubernetes.namespace().await;
        let own = installed.pod("own").await;
        let by_own = installed.pods(installed.client_of(&own).await);
        in_force(&by_own, "own").await;
        let stranger = without_lease(&installed, "stranger").await;
        let foreign = kubernetes.pod(&elsewhere, "own", &[], "default").await;

        let accounts = [namespace, &elsewhere]
            .map(|namespace| json!({"kind": "ServiceAccount", "name": "default", "namespace": namespace}));
        let group = "rbac.authorization.k8s.io";
        let subjects = [
            json!({"kind": "User", "name": "tenant", "apiGroup": group}),
            json!({"kind": "Group", "name": "tenants", "apiGroup": group}),
            json!({"kind": "Group", "name": "system:nodes", "apiGroup": group}),
            accounts[0].clone(),
            accounts[1].clone(),
        ];
        for (number, subject) in subjects.iter().enumerate() {
            let role = "leasehold-label-demote-events";
            let granted = binding(&format!("{role}-{number}"), role, subject);
            kubernetes.apply(namespace, &granted).await;
        }

        let annotated = json!({"metadata": {"annotations": {"a": "b"}}});
        let label = installed.label();
        let (leader, follower) = (labelled(&label, "leader"), labelled(&label, "follower"));
        let administrator = installed.pods(kubernetes.client());
        patch_status(&administrator, "own", leader.clone(), false)
            .await
            .unwrap();

        let not_own = "only the pod that its token is bound to";
        for user in [["tenant", "system:authenticated"], ["someone", "tenants"]] {
            for patch in [&annotated, &leader, &follower] {
                let refused = found("the binding takes effect", async || {
                    let refused = patch_as(&installed, "own", user, patch).await.unwrap_err();
                    (!refused.contains("cannot patch resource")).then_some(refused)
                });
                assert_contains(&refused.await, not_own);
            }
        }
        // Both tokens belong to pods without a lease. The pod of the second token has the name of a
        // replica.
        for (pod, name) in [(&stranger, "stranger"), (&foreign, "own")] {
            let pods = installed.pods(installed.client_of(pod).await);
            for patch in [&annotated, &leader, &follower] {
                let refused = patch_status(&pods, "own", patch.clone(), false).await;
                assert_contains(&refused.unwrap_err(), not_own);
            }
            if name == "stranger" {
                let refused = patch_status(&pods, name, leader.clone(), false).await;
                assert_contains(&refused.unwrap_err(), "no container with the args run");
            }
        }
        for user in [
            ["system:node:node-1", "system:nodes"],
            ["root", "system:masters"],
        ] {
            let patched = patch_as(&installed, "own", user, &annotated).await;
            patched.unwrap_or_else(|refused| panic!("{user:?}: {refused}"));
        }
    });
}

/// Sends requests as an account without the ClusterRole, with these verbs on `pods/status`.
async fn annotate_with(installed: &Installed, verbs: &[&str]) -> Result<Pod, String> {
    let own = installed.pod("own").await;
    in_force(&installed.pods(installed.client_of(&own).await), "own").await;
    let verbs = format!("verbs: {verbs:?}");
    let role = OPERATOR.replace("verbs: [patch, update]", &verbs);
    installed
        .kubernetes
        .apply(&installed.namespace, &role)
        .await;
    let operator = without_lease(installed, "operator").await;
    let pods = installed.pods(installed.client_of(&operator).await);
    let annotated = json!({"metadata": {"annotations": {"a": "b"}}});
    found("the role takes effect", async || {
        let patched = patch_status(&pods, "own", annotated.clone(), false).await;
        match patched {
            Err(refused) if refused.contains("cannot patch resource") => None,
            answered => Some(answered),
        }
    })
    .await
}

#[test]
fn an_account_with_the_permission_from_another_role_is_not_restricted() {
    run(async {
        let installed = Installed::new("minimal", &[CLUSTER]).await;
        let patched = annotate_with(&installed, &["patch", "update"]).await;
        patched.unwrap();
    });
}

/// The API server authorizes a request before it has the body. An account may therefore have lost
/// the ClusterRole when the API server evaluates the policy. The account of this test never had the
/// ClusterRole, and has only the permission `patch pods/status`.
#[test]
fn an_account_that_has_lost_the_role_during_a_request_is_restricted() {
    run(async {
        let installed = Installed::new("minimal", &[CLUSTER]).await;
        let refused = annotate_with(&installed, &["patch"]).await.unwrap_err();
        assert_contains(&refused, "'labels.leasehold.dev'");
    });
}

#[test]
fn check_recognizes_the_rights_and_the_policies_of_the_cluster() {
    run(async {
        let installed = Installed::new("minimal", &[CLUSTER]).await;
        let pod = installed.pod("own").await;
        let client = installed.client_of(&pod).await;
        in_force(&installed.pods(client), "own").await;
        let place = installed.kubernetes.place_of(pod).await;
        let directory = place.credentials.directory().display();
        let places = [
            "--mongodb-uri-file=",
            "--status-directory=",
            "--http-listen=",
        ];
        let flags = installed.objects.flags()[1..].iter();
        let flags = flags.filter_map(Value::as_str);
        let flags = flags.filter(|flag| !places.iter().any(|place| flag.starts_with(place)));
        let status = tempfile::tempdir().unwrap();
        let mut check = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        check
            .arg("check")
            .args(flags)
            .arg("--output=json")
            .arg("--timeout=5s")
            .arg(format!("--status-directory={}", status.path().display()))
            .arg("--http-listen=127.0.0.1:0")
            .arg(format!("--kubernetes-credentials={directory}"))
            .env(
                "LEASEHOLD_MONGODB__URI",
                "mongodb://127.0.0.1:1/?replicaSet=rs0",
            )
            .env("POD_NAME", "own")
            .env("POD_NAMESPACE", &installed.namespace)
            .env("POD_ACCOUNT", "orders-leasehold")
            .env("POD_UID", place.pod.uid().unwrap())
            .envs(installed.kubernetes.environment());
        let (ended, output) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || ended.send(check.output()));
        let output = output.await.unwrap().unwrap();
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let results = |name: &str| -> Vec<_> {
            let checks = answer["checks"].as_array().expect(&said).iter();
            let of = checks.filter(|check| check["name"] == name);
            of.map(|check| check["result"].clone()).collect()
        };
        assert_eq!(results("access"), ["ok"; 4], "{said}");
        assert_eq!(results("label"), ["ok"], "{said}");
        assert_eq!(results("admission-policy"), ["ok"], "{said}");
    });
}
