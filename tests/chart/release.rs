//! Goal: helm installs and upgrades the chart as documented, and needs only the documented rights.
//! Method: runs helm on a real API server as a cluster administrator and as the administrator of a
//! namespace.

use std::fmt::Debug;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Resource;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use leasehold_testbed::wait::found;
use leasehold_testbed::{Kubernetes, assert_contains, run};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cluster::{install_cluster_chart, patch_status};
use crate::documented::block;
use crate::helm::{chart, text, tool, values};
use crate::policy::{in_force, labelled};

pub(crate) struct Place {
    pub(crate) kubernetes: Arc<Kubernetes>,
    pub(crate) namespace: String,
}

impl Place {
    pub(crate) async fn new() -> Self {
        let kubernetes = Kubernetes::shared().await;
        let namespace = kubernetes.namespace().await;
        Self {
            kubernetes,
            namespace,
        }
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        self.command_of("helm", arguments)
    }

    fn command_of(&self, version: &str, arguments: &[&str]) -> Command {
        let mut helm = tool(version);
        helm.args(arguments)
            .args(["--namespace", &self.namespace, "--kubeconfig"])
            .arg(self.kubernetes.directory().join("kubeconfig"));
        helm
    }

    /// Returns helm's standard output, or all of its output if helm fails.
    fn helm(&self, arguments: &[&str]) -> Result<String, String> {
        self.helm_of("helm", arguments)
    }

    pub(crate) fn helm_of(&self, version: &str, arguments: &[&str]) -> Result<String, String> {
        let output = self.command_of(version, arguments).output().unwrap();
        if output.status.success() {
            Ok(String::from_utf8(output.stdout).unwrap())
        } else {
            Err(text(&output))
        }
    }

    pub(crate) fn chart(&self, verb: &str, release: &str, more: &[&str]) -> Result<String, String> {
        self.chart_of("helm", verb, release, more)
    }

    pub(crate) fn chart_of(
        &self,
        version: &str,
        verb: &str,
        release: &str,
        more: &[&str],
    ) -> Result<String, String> {
        let (chart, file) = (chart(), values("minimal"));
        let arguments = [verb, release, path(&chart), "--values", path(&file)];
        self.helm_of(version, &[&arguments[..], more].concat())
    }

    pub(crate) async fn delete<K>(&self, name: &str)
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
        K: Clone + DeserializeOwned + Debug,
    {
        let objects: Api<K> = self.kubernetes.objects(&self.namespace);
        let parameters = DeleteParams::background();
        objects.delete(name, &parameters).await.unwrap();
        found("the workload has been deleted", async || {
            let there = objects.get_opt(name).await.unwrap();
            there.is_none().then_some(())
        })
        .await;
    }

    async fn lease(&self) -> String {
        let deployments: Api<Deployment> = self.kubernetes.objects(&self.namespace);
        let there = json!(deployments.get("orders").await.unwrap());
        let flags = &there["spec"]["template"]["spec"]["initContainers"][0]["args"];
        let mut flags = flags.as_array().unwrap().iter().filter_map(Value::as_str);
        let lease = flags.find_map(|flag| flag.strip_prefix("--lease-name="));
        lease.unwrap().to_owned()
    }
}

pub(crate) fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

const UPGRADE: [&str; 2] = ["upgrade", "orders"];

#[test]
fn a_change_of_the_lease_is_refused_while_the_old_deployment_exists() {
    run(async {
        let place = Place::new().await;
        let [upgrade, release] = UPGRADE;
        place.chart("install", release, &[]).unwrap();
        let to = ["--set", "leasehold.leaseName=else"];
        for change in [
            "leasehold.leaseName=else",
            "leasehold.config.mongodb.collection=others",
            "leasehold.config.mongodb.database=others",
            // The strategy Recreate does not help, because the lease is part of the immutable
            // selector.
            "leasehold.leaseName=else,deployment.strategy.type=Recreate",
        ] {
            let refused = place
                .chart(upgrade, release, &["--set", change])
                .unwrap_err();
            let namespace = &place.namespace;
            for word in [
                &format!(
                    "the replicas contend for the lease {namespace}.orders in leasehold.leases"
                ),
                &format!(
                    "kubectl --namespace {namespace} delete deployment orders --cascade=foreground"
                ),
            ] {
                assert!(refused.contains(word), "{change}: {refused}");
            }
        }
        place.delete::<Deployment>("orders").await;
        place.chart(upgrade, release, &to).unwrap();
        assert_eq!(place.lease().await, "else");
        place.chart(upgrade, release, &to).unwrap();
    });
}

#[test]
fn a_new_label_prefix_needs_the_strategy_recreate() {
    run(async {
        let place = Place::new().await;
        let [upgrade, release] = UPGRADE;
        place.chart("install", release, &[]).unwrap();
        let to = ["--set", "leasehold.kubernetes.labelPrefix=lead.example.com"];
        let refused = place.chart(upgrade, release, &to).unwrap_err();
        assert_contains(&refused, "set deployment.strategy.type to Recreate");
        let recreating = ["--set", "deployment.strategy.type=Recreate"];
        let once = [&to[..], &recreating[..]].concat();
        place.chart(upgrade, release, &once).unwrap();
        // Later upgrades do not need this strategy.
        place.chart(upgrade, release, &to).unwrap();
        let deployments: Api<Deployment> = place.kubernetes.objects(&place.namespace);
        let there = deployments.get("orders").await.unwrap();
        let strategy = there.spec.unwrap().strategy.unwrap();
        assert_eq!(strategy.type_.as_deref(), Some("RollingUpdate"));
    });
}

/// A rollback renders no templates, so the chart cannot check a rollback. The API server refuses
/// this rollback, because the lease is part of the immutable selector.
#[test]
fn a_rollback_is_refused_only_if_it_changes_the_lease() {
    run(async {
        for (version, undo) in [("helm", "--rollback-on-failure"), ("helm3", "--atomic")] {
            let place = Place::new().await;
            place.chart_of(version, "install", "orders", &[]).unwrap();
            place.delete::<Deployment>("orders").await;
            let to = ["--set", "leasehold.leaseName=else"];
            let upgrade = |more: &[&str]| {
                let arguments = [&to[..], more].concat();
                place.chart_of(version, "upgrade", "orders", &arguments)
            };
            upgrade(&[]).unwrap();
            upgrade(&["--set", "deployment.replicas=3"]).unwrap();

            let back = |revision: &str| place.helm_of(version, &["rollback", "orders", revision]);
            let refused = back("1").unwrap_err();
            assert_contains(&refused, "field is immutable");
            assert_contains(&refused, "contends.leasehold.dev/for");
            assert_eq!(place.lease().await, "else", "{version}");
            back("2").unwrap();
            assert_eq!(place.lease().await, "else", "{version}");

            // No pod becomes ready in this cluster, so the upgrade fails, and helm rolls back.
            place.delete::<Deployment>("orders").await;
            let own = place.chart_of(version, "upgrade", "orders", &[undo, "--timeout", "1s"]);
            let failed = own.unwrap_err();
            assert_contains(&failed, "field is immutable");
            let first = format!("{}.orders", place.namespace);
            assert_eq!(place.lease().await, first, "{version}");
        }
    });
}

#[test]
fn a_rename_is_refused_while_the_old_pods_run() {
    run(async {
        let place = Place::new().await;
        place.chart("install", "orders", &[]).unwrap();
        let upgrade = |more: &[&str]| place.chart("upgrade", "orders", more);
        for change in ["fullnameOverride=web", "nameOverride=web"] {
            let refused = upgrade(&["--set", change]).unwrap_err();
            let remedy =
                "set deployment.replicas to 0 in an update of the Deployment orders before";
            assert_contains(&refused, remedy);
        }
        // A rename is allowed if the new pods contend for the old pods' lease.
        let lease = format!("leasehold.leaseName={}.orders", place.namespace);
        upgrade(&["--set", "fullnameOverride=web", "--set", &lease]).unwrap();
        upgrade(&["--set", &lease]).unwrap();
        upgrade(&["--set", "deployment.replicas=0"]).unwrap();
        upgrade(&["--set", "fullnameOverride=web"]).unwrap();
        let refused = upgrade(&[]).unwrap_err();
        assert_contains(&refused, "an update of the Deployment web before");
    });
}

#[test]
fn an_upgrade_needs_rights_only_for_kinds_of_the_release() {
    run(async {
        let place = Place::new().await;
        let rules = json!([
            {"apiGroups": [""], "resources": ["configmaps", "secrets", "serviceaccounts"], "verbs": ["*"]},
            {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["*"]},
            {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": ["*"]},
        ]);
        let objects = [
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "Role",
                "metadata": {"name": "deployer"},
                "rules": rules,
            }),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": {"name": "deployer"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "deployer"},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "deployer"}],
            }),
        ];
        let objects = objects.map(|object| object.to_string()).join("\n---\n");
        place.kubernetes.apply(&place.namespace, &objects).await;
        let rights = "leasehold.policy.create=false,leasehold.policy.existing=true,leasehold.rbac.create=false";
        let by = ["--kube-as-user", "deployer", "--set", rights];
        place.chart("install", "orders", &by).unwrap();
        place.chart("upgrade", "orders", &by).unwrap();
        let other = ["--set", "leasehold.leaseName=else"];
        let refused = place.chart("upgrade", "orders", &[&by[..], &other].concat());
        assert_contains(&refused.unwrap_err(), "delete deployment orders");
    });
}

#[test]
fn a_stateful_set_keeps_its_claims_and_an_extra_lease_its_name() {
    run(async {
        let place = Place::new().await;
        let set = ["--set", "workload.kind=StatefulSet"];
        let with = |more: &[&'static str]| [&set[..], more].concat();
        place.chart("install", "orders", &with(&[])).unwrap();
        let other = ["--set", "leasehold.leaseName=else"];
        let refused = place.chart("upgrade", "orders", &with(&other)).unwrap_err();
        for words in [
            "set deployment.replicas to 0 in an update before this one",
            "delete statefulset orders --cascade=orphan",
        ] {
            assert_contains(&refused, words);
        }
        place.delete::<StatefulSet>("orders").await;
        place.chart("upgrade", "orders", &with(&other)).unwrap();
        let refused = place.helm(&["rollback", "orders", "1"]).unwrap_err();
        assert_contains(&refused, "updates to statefulset spec");

        // An upgrade may change either the kind or the lease, but not both.
        let refused = place.chart("upgrade", "orders", &[]).unwrap_err();
        let remedy = "set deployment.replicas to 0 in an update of the StatefulSet orders before";
        assert_contains(&refused, remedy);
        place.chart("upgrade", "orders", &other).unwrap();

        let extra = |lease: &str| format!("leasehold.extraLeases.reports.leaseName={lease}");
        let port = "leasehold.extraLeases.reports.port=9403";
        let [first, second] = ["first", "second"].map(extra);
        let with_extra = |lease: &str| {
            let set = [&other[..], &["--set", port, "--set", lease]].concat();
            place.chart("upgrade", "orders", &set)
        };
        with_extra(&first).unwrap();
        let refused = with_extra(&second).unwrap_err();
        assert_contains(
            &refused,
            "leasehold.extraLeases.reports: the replicas contend for",
        );
        assert_contains(&refused, "use another key");
        place.chart("upgrade", "orders", &other).unwrap();
        assert_contains(&with_extra(&second).unwrap_err(), "use another key");
        let none = [&other[..], &["--set", "deployment.replicas=0"]].concat();
        place.chart("upgrade", "orders", &none).unwrap();
        with_extra(&second).unwrap();
    });
}

#[test]
fn a_deployment_can_become_a_job_once_it_has_no_replicas() {
    run(async {
        let place = Place::new().await;
        let upgrade = |more: &[&str]| place.chart("upgrade", "orders", more);
        place.chart("install", "orders", &[]).unwrap();
        let job = [
            "--set",
            "workload.kind=Job,mode=supervisor,workload.command={/report}",
        ];
        // A lock with another name would not exclude the Deployment's replicas. A lock with the
        // name of the replicas' lease could not be created.
        for lease in ["orders", "report"] {
            let name = format!("leasehold.leaseName={lease}");
            let refused = upgrade(&[&job[..], &["--set", &name]].concat()).unwrap_err();
            for words in [
                &format!("they would contend for the lock {lease} in leasehold.leases"),
                "set deployment.replicas to 0 in an update of the Deployment orders before this one",
            ] {
                assert!(refused.contains(words), "{lease}: {refused}");
            }
        }
        upgrade(&["--set", "deployment.replicas=0"]).unwrap();
        let named = ["--set", "leasehold.leaseName=report"];
        upgrade(&[&job[..], &named[..]].concat()).unwrap();

        // The API server considers the Job running, because there is no kubelet to report that its
        // pod has exited.
        let refused = upgrade(&[]).unwrap_err();
        let remedy = "wait until the Job orders has no run, or delete it";
        assert_contains(&refused, remedy);
        place.delete::<Job>("orders").await;
        upgrade(&[]).unwrap();
    });
}

/// Grants a user the ClusterRole `admin` in the namespace.
async fn administrator_of(place: &Place, user: &str) {
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "apiVersion": format!("{group}/v1"),
        "kind": "RoleBinding",
        "metadata": {"name": "administrator"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    });
    place
        .kubernetes
        .apply(&place.namespace, &binding.to_string())
        .await;
}

/// Creates a pod of the release `orders`. Waits until a policy restricts the pod's token, and sets
/// its label.
async fn set_label_of_a_pod(place: &Place) {
    let deployments: Api<Deployment> = place.kubernetes.objects(&place.namespace);
    let deployment = deployments.get("orders").await.unwrap();
    let mut pod = json!(deployment.spec.unwrap().template);
    pod["metadata"]["name"] = json!("own");
    pod["spec"]["nodeName"] = json!("node-1");
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let pods: Api<Pod> = place.kubernetes.objects(&place.namespace);
    let pod = pods.create(&PostParams::default(), &pod).await.unwrap();
    let credentials = place.kubernetes.credentials(&pod).await;
    let client = place.kubernetes.client_as(&credentials);
    let pods: Api<Pod> = Api::namespaced(client, &place.namespace);
    in_force(&pods, "own").await;
    let label = format!("leasehold.dev/{}.orders", place.namespace);
    patch_status(&pods, "own", labelled(&label, "leader"), false)
        .await
        .unwrap();
}

fn documented(file: &str) -> tempfile::NamedTempFile {
    let values = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    std::fs::write(values.path(), block("docs/kubernetes.md", file)).unwrap();
    values
}

#[test]
fn a_namespace_administrator_can_install_as_documented() {
    run(async {
        let place = Place::new().await;
        install_cluster_chart(&place.kubernetes, &place.namespace).await;
        let tenant = ["--kube-as-user", "tenant"];
        administrator_of(&place, "tenant").await;
        let refused = found("the ClusterRole admin is aggregated", async || {
            let refused = place.chart("install", "first", &tenant).unwrap_err();
            refused
                .contains("validatingadmissionpolicies")
                .then_some(refused)
        })
        .await;
        assert_contains(&refused, "cannot");

        let file = documented("tenant.yaml");
        let values = [&tenant[..], &["--values", path(file.path())]].concat();
        found("the administrator may bind the roles", async || {
            let installed =
                place.chart("upgrade", "orders", &[&values[..], &["--install"]].concat());
            installed.ok()
        })
        .await;
        place.chart("upgrade", "orders", &values).unwrap();
        set_label_of_a_pod(&place).await;
        place
            .helm(&["uninstall", "orders", tenant[0], tenant[1]])
            .unwrap();

        // The administrator may bind the permissions, but does not have them and may not grant
        // them.
        let no_policy = [
            "--set",
            "leasehold.policy.create=false,leasehold.policy.existing=true",
        ];
        let refused = place.chart("install", "second", &[&tenant[..], &no_policy].concat());
        let refused = refused.unwrap_err();
        assert_contains(&refused, "second-leasehold");
        assert_contains(&refused, "pods/status");
    });
}

#[test]
fn without_the_cluster_chart_a_cluster_administrator_creates_the_rights_of_one_release() {
    run(async {
        let place = Place::new().await;
        administrator_of(&place, "tenant").await;
        let only = ["--show-only", "templates/rights.yaml"];
        let rights = place.chart("template", "orders", &only).unwrap();
        place.kubernetes.apply(&place.namespace, &rights).await;
        let file = documented("tenant-of-one.yaml");
        let values = ["--kube-as-user", "tenant", "--values", path(file.path())];
        found("the administrator installs the rest", async || {
            let arguments = [&values[..], &["--install"]].concat();
            place.chart("upgrade", "orders", &arguments).ok()
        })
        .await;
        set_label_of_a_pod(&place).await;
        place
            .helm(&["uninstall", "orders", values[0], values[1]])
            .unwrap();
    });
}

/// A RoleBinding cannot be changed to another role.
#[test]
fn an_upgrade_can_change_the_source_of_the_rights() {
    run(async {
        let place = Place::new().await;
        install_cluster_chart(&place.kubernetes, &place.namespace).await;
        place.chart("install", "orders", &[]).unwrap();
        let bindings: Api<RoleBinding> = place.kubernetes.objects(&place.namespace);
        for (source, kind) in [("cluster", "ClusterRole"), ("release", "Role")] {
            let rights = format!("leasehold.rights={source}");
            let upgrade = ["--set", &rights];
            place.chart("upgrade", "orders", &upgrade).unwrap();
            let found = bindings.list(&ListParams::default()).await.unwrap();
            let kinds: Vec<_> = found.items.iter().map(|it| &it.role_ref.kind).collect();
            assert!(kinds.iter().all(|it| **it == kind), "{source}: {kinds:?}");
        }
        place
            .chart("upgrade", "orders", &["--set", "leasehold.rights=cluster"])
            .unwrap();
        set_label_of_a_pod(&place).await;
    });
}
