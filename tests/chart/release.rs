//! Goal: helm installs and upgrades as documented, with the rights of the user who runs it.
//! Method: helm on the real API server, as the administrator of the cluster and as that of one
//! namespace.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, PostParams};
use leasehold_testbed::wait::found;
use leasehold_testbed::{Kubernetes, run};
use serde_json::json;

use crate::cluster::patch_status;
use crate::documented::block;
use crate::helm::{chart, text, tool, values};

/// A namespace in which helm runs.
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

    /// Returns a command of helm.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut helm = tool("helm");
        helm.args(arguments)
            .args(["--namespace", &self.namespace, "--kubeconfig"])
            .arg(self.kubernetes.directory().join("kubeconfig"));
        helm
    }

    /// Runs helm. Returns its standard output, or all of its output if it fails.
    fn helm(&self, arguments: &[&str]) -> Result<String, String> {
        let output = self.command(arguments).output().unwrap();
        if output.status.success() {
            Ok(String::from_utf8(output.stdout).unwrap())
        } else {
            Err(text(&output))
        }
    }

    /// Runs a helm command (such as `install` or `upgrade`) on the chart with the minimal values.
    pub(crate) fn chart(&self, verb: &str, release: &str, more: &[&str]) -> Result<String, String> {
        let (chart, file) = (chart(), values("minimal"));
        let arguments = [verb, release, path(&chart), "--values", path(&file)];
        self.helm(&[&arguments[..], more].concat())
    }
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

const UPGRADE: [&str; 2] = ["upgrade", "orders"];

#[test]
fn an_update_to_another_lease_is_refused_while_old_replicas_would_go_on() {
    run(async {
        let place = Place::new().await;
        let [upgrade, release] = UPGRADE;
        place.chart("install", release, &[]).unwrap();
        let to = ["--set", "leasehold.leaseName=else"];
        for change in [
            "leasehold.leaseName=else",
            "leasehold.kubernetes.labelPrefix=lead.example.com",
            "leasehold.config.mongodb.collection=others",
        ] {
            let refused = place
                .chart(upgrade, release, &["--set", change])
                .unwrap_err();
            for word in [
                &format!(
                    "the replicas contend for leasehold.dev/{}.orders",
                    place.namespace
                ),
                "set deployment.strategy.type to Recreate",
            ] {
                assert!(refused.contains(word), "{change}: {refused}");
            }
        }
        let recreating = ["--set", "deployment.strategy.type=Recreate"];
        let once = [&to[..], &recreating[..]].concat();
        place.chart(upgrade, release, &once).unwrap();
        // Later upgrades need no special strategy.
        place.chart(upgrade, release, &to).unwrap();
        let deployments: Api<Deployment> = place.kubernetes.objects(&place.namespace);
        let there = deployments.get("orders").await.unwrap();
        let strategy = there.spec.unwrap().strategy.unwrap();
        assert_eq!(strategy.type_.as_deref(), Some("RollingUpdate"));
    });
}

#[test]
fn a_stateful_set_changes_its_lease_without_replicas_and_an_extra_lease_keeps_its_name() {
    run(async {
        let place = Place::new().await;
        let set = ["--set", "workload.kind=StatefulSet"];
        let with = |more: &[&'static str]| [&set[..], more].concat();
        place.chart("install", "orders", &with(&[])).unwrap();
        let other = ["--set", "leasehold.leaseName=else"];
        let refused = place.chart("upgrade", "orders", &with(&other)).unwrap_err();
        assert!(
            refused.contains("set deployment.replicas to 0"),
            "{refused}"
        );
        let none = [&other[..], &["--set", "deployment.replicas=0"]].concat();
        place.chart("upgrade", "orders", &with(&none)).unwrap();
        place.chart("upgrade", "orders", &with(&other)).unwrap();

        // Another kind contends for the same lease, but not for another one in the same update.
        let refused = place.chart("upgrade", "orders", &[]).unwrap_err();
        let remedy = "change workload.kind from StatefulSet to Deployment in an update of its own";
        assert!(refused.contains(remedy), "{refused}");
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
        assert!(
            refused.contains("leasehold.extraLeases.reports: the replicas contend for"),
            "{refused}"
        );
        assert!(refused.contains("use another key"), "{refused}");
        place.chart("upgrade", "orders", &other).unwrap();
        with_extra(&second).unwrap();
    });
}

#[test]
fn a_deployment_becomes_a_job_under_a_lock_when_it_has_no_replicas() {
    run(async {
        let place = Place::new().await;
        let upgrade = |more: &[&str]| place.chart("upgrade", "orders", more);
        place.chart("install", "orders", &[]).unwrap();
        let job = [
            "--set",
            "workload.kind=Job,mode=supervisor,workload.command={/report}",
        ];
        // A lock of another name would not exclude the replicas of the Deployment, one of the same
        // name could not be created.
        for lease in ["orders", "report"] {
            let name = format!("leasehold.leaseName={lease}");
            let refused = upgrade(&[&job[..], &["--set", &name]].concat()).unwrap_err();
            for words in [
                &format!("they would contend for the lock {lease} in leasehold.leases"),
                "set deployment.replicas to 0 in an update of the Deployment before this one",
            ] {
                assert!(refused.contains(words), "{lease}: {refused}");
            }
        }
        upgrade(&["--set", "deployment.replicas=0"]).unwrap();
        let named = ["--set", "leasehold.leaseName=report"];
        upgrade(&[&job[..], &named[..]].concat()).unwrap();

        // The Job runs, as far as the server knows.
        let refused = upgrade(&[]).unwrap_err();
        let remedy = "wait until the Job has no run, or delete it";
        assert!(refused.contains(remedy), "{refused}");
        let jobs: Api<Job> = place.kubernetes.objects(&place.namespace);
        jobs.delete("orders", &DeleteParams::background())
            .await
            .unwrap();
        found("the Job is gone", async || {
            let there = jobs.get_opt("orders").await.unwrap();
            there.is_none().then_some(())
        })
        .await;
        upgrade(&[]).unwrap();
    });
}

/// Bindings that grant a user the rights of the ClusterRole `admin` in a namespace. Its parts are
/// bound, because the controller that aggregates them does not run here.
fn administrator_of(namespace: &str, user: &str) -> String {
    let binding = |part: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": part, "namespace": namespace},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": format!("system:aggregate-to-{part}"),
            },
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        })
        .to_string()
    };
    ["admin", "edit", "view"].map(binding).join("\n---\n")
}

#[test]
fn the_administrator_of_a_namespace_installs_as_documented() {
    run(async {
        let place = Place::new().await;
        let tenant = ["--kube-as-user", "tenant"];
        let bindings = administrator_of(&place.namespace, "tenant");
        place.kubernetes.apply(&place.namespace, &bindings).await;

        let refused = place.chart("install", "first", &tenant).unwrap_err();
        assert!(refused.contains("validatingadmissionpolicies"), "{refused}");
        let no_policy = [
            "--set",
            "leasehold.policy.create=false,leasehold.policy.existing=true",
        ];
        let refused = place.chart("install", "second", &[&tenant[..], &no_policy].concat());
        let refused = refused.unwrap_err();
        assert!(refused.contains("second-leasehold"), "{refused}");
        assert!(refused.contains("pods/status"), "{refused}");

        // Created by the administrator of the cluster.
        let only = ["--show-only", "templates/rights.yaml"];
        let rights = place.chart("template", "orders", &only).unwrap();
        place.kubernetes.apply(&place.namespace, &rights).await;

        let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
        std::fs::write(file.path(), block("docs/kubernetes.md", "tenant.yaml")).unwrap();
        let documented = ["--values", path(file.path())];
        let installed = place.chart("install", "orders", &[&tenant[..], &documented].concat());
        installed.unwrap();

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
        let annotated = json!({"metadata": {"annotations": {"trial": "yes"}}});
        found("the policy is in force", async || {
            let tried = patch_status(&pods, "own", annotated.clone(), true).await;
            let refused = tried.err();
            refused.filter(|error| error.contains("ValidatingAdmissionPolicy"))
        })
        .await;
        let label = format!("leasehold.dev/{}.orders", place.namespace);
        let leader = json!({"metadata": {"labels": {label: "leader"}}});
        patch_status(&pods, "own", leader, false).await.unwrap();
        place
            .helm(&["uninstall", "orders", "--kube-as-user", "tenant"])
            .unwrap();
    });
}
