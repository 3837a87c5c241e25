//! Measures how long a write to `pods/status` takes in a cluster with many releases, because the API
//! server evaluates admission policies for the writes of all clients. `make policy-cost` prints
//! the table of docs/kubernetes.md.

use std::fmt::Write as _;
use std::io::Write as _;

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt;
use kube::api::{Api, PostParams};
use leasehold_testbed::daemon::boottime_ns;
use leasehold_testbed::{Kubernetes, run};
use serde_json::{Value, json};

use crate::cluster::{RIGHTS, patch_status, render};
use crate::helm::{Objects, cluster_chart, render_chart};
use crate::policy::{in_force, labelled};

const RELEASES: usize = 200;
const NAMESPACES: usize = 20;
/// The control planes take turns, because the speed of a machine varies.
const ROUNDS: usize = 10;
const WRITES_OF_ROUND: usize = 30;
const RATIO_MAX: f64 = 1.2;

/// The permission of an operator, which the policies do not restrict.
pub(crate) const OPERATOR: &str = "
kind: Role
apiVersion: rbac.authorization.k8s.io/v1
metadata: {name: operator}
rules: [{apiGroups: [''], resources: [pods/status], verbs: [patch, update]}]
---
kind: RoleBinding
apiVersion: rbac.authorization.k8s.io/v1
metadata: {name: operator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: operator}
subjects: [{kind: ServiceAccount, name: default}]
";

struct Scene {
    kubernetes: Kubernetes,
    /// Tokens that may write the status of the pod `own`: the token of a controller with
    /// permissions in all namespaces, and the token of a sidecar.
    writers: Vec<Writer>,
}

struct Writer {
    pods: Api<Pod>,
    key: String,
    took_ns: Vec<u64>,
}

impl Writer {
    async fn write(&mut self, rounds: usize) {
        for number in 0..rounds {
            let value = ["leader", "follower"][number % 2];
            let began = boottime_ns();
            patch_status(&self.pods, "own", labelled(&self.key, value), false)
                .await
                .unwrap();
            self.took_ns.push(boottime_ns() - began);
        }
    }

    fn median(&self) -> f64 {
        let mut took = self.took_ns.clone();
        took.sort_unstable();
        took[took.len() / 2] as f64 / 1e6
    }
}

fn objects_of_rights(rights: &str, namespace: &str) -> Vec<Value> {
    let rendered = Objects::parse(&render("minimal", namespace, &[rights]));
    let of_rights = |object: &&Value| {
        let kind = object["kind"].as_str().unwrap();
        kind.starts_with("ValidatingAdmissionPolicy")
            || kind.contains("Role")
            || kind == "ServiceAccount"
    };
    rendered.iter().filter(of_rights).cloned().collect()
}

/// Starts a control plane with this many releases that get their rights from this source, spread
/// over this many namespaces.
async fn scene(rights: &str, releases: usize, namespaces: usize) -> Scene {
    let kubernetes = Kubernetes::start().await;
    let mut of_releases = Vec::new();
    for _ in 0..namespaces {
        of_releases.push(kubernetes.namespace().await);
    }
    let namespace = of_releases[0].clone();
    if rights == RIGHTS[1] && releases > 0 {
        let rendered = render_chart(&cluster_chart(), &[]).unwrap();
        kubernetes.apply("default", &rendered).await;
    }
    for number in 0..releases {
        let namespace = &of_releases[number % namespaces];
        let objects = objects_of_rights(rights, namespace);
        let documents: Vec<_> = objects.iter().map(Value::to_string).collect();
        let of_release = documents.join("\n---\n");
        let of_release = match number {
            0 => of_release,
            _ => of_release.replace("orders", &format!("orders-{number}")),
        };
        kubernetes.apply(namespace, &of_release).await;
    }
    let lease = format!("{namespace}.orders");
    let account = if releases > 0 {
        "orders-leasehold"
    } else {
        "default"
    };
    let own = json!({
        "metadata": {"name": "own"},
        "spec": {
            "serviceAccountName": account, "nodeName": "node-1", "automountServiceAccountToken": false,
            "containers": [Container {
                name: "leasehold".to_owned(), image: Some("registry.example/leasehold".to_owned()),
                args: Some(vec!["run".to_owned(), format!("--lease-name={lease}")]), ..Container::default()
            }],
        },
    });
    let pods: Api<Pod> = kubernetes.objects(&namespace);
    let own = pods
        .create(
            &PostParams::default(),
            &serde_json::from_value(own).unwrap(),
        )
        .await
        .unwrap();
    let everywhere = OPERATOR.replace("Role", "ClusterRole").replace(
        "name: default",
        &format!("name: default, namespace: {namespace}"),
    );
    kubernetes.apply(&namespace, &everywhere).await;
    let operator = kubernetes.pod(&namespace, "operator", &[], "default").await;
    let mut writers = Vec::new();
    for (pod, key) in [
        (&operator, "example.com/state".to_owned()),
        (&own, format!("leasehold.dev/{lease}")),
    ] {
        let credentials = kubernetes.credentials(pod).await;
        let client = kubernetes.client_as(&credentials);
        let pods: Api<Pod> = Api::namespaced(client, &namespace);
        if pod.name_any() == "own" && releases > 0 {
            in_force(&pods, "own").await;
        }
        writers.push(Writer {
            pods,
            key,
            took_ns: Vec::new(),
        });
    }
    Scene {
        kubernetes,
        writers,
    }
}

#[test]
#[ignore = "measures for minutes: make policy-cost"]
fn policies_of_the_cluster_cost_the_same_for_any_number_of_releases() {
    run(async {
        let mut scenes = [
            ("no release", scene(RIGHTS[0], 0, 1).await),
            ("1 release, `rights: cluster`", scene(RIGHTS[1], 1, 1).await),
            (
                "200 releases in 20 namespaces, `rights: cluster`",
                scene(RIGHTS[1], RELEASES, NAMESPACES).await,
            ),
            (
                "200 releases in one namespace, `rights: cluster`",
                scene(RIGHTS[1], RELEASES, 1).await,
            ),
            (
                "200 releases in one namespace, `rights: release`",
                scene(RIGHTS[0], RELEASES, 1).await,
            ),
        ];
        for round in 0..=ROUNDS {
            for (_, scene) in &mut scenes {
                for writer in &mut scene.writers {
                    writer.write(WRITES_OF_ROUND).await;
                    if round == 0 {
                        // The first round only warms up.
                        writer.took_ns.clear();
                    }
                }
            }
        }
        let medians = scenes.each_ref().map(|(what, scene)| {
            (
                *what,
                [scene.writers[0].median(), scene.writers[1].median()],
            )
        });
        let plain = medians[0].1;
        let ratios = |[other, sidecar]: [f64; 2]| [other / plain[0], sidecar / plain[1]];
        let mut table = "| in the cluster | write of a controller | ÷ no release | write of a sidecar | ÷ no release |\n| --- | --- | --- | --- | --- |\n".to_owned();
        for (what, took) in medians {
            let ([other, sidecar], [of_other, of_sidecar]) = (took, ratios(took));
            writeln!(
                table,
                "| {what} | {other:.1} ms | {of_other:.2} | {sidecar:.1} ms | {of_sidecar:.2} |"
            )
            .unwrap();
        }
        writeln!(table, "N {}", ROUNDS * WRITES_OF_ROUND).unwrap();
        std::io::stdout().write_all(table.as_bytes()).unwrap();
        for (what, took) in &medians[..4] {
            let ratios = ratios(*took);
            assert!(ratios.iter().all(|it| *it <= RATIO_MAX), "{what}: {took:?}");
        }
        drop(scenes.map(|(_, scene)| scene.kubernetes));
    });
}
