//! Installs the chart in a namespace of a real API server and creates pods from its workload.

use std::fs;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Client;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use leasehold_testbed::Kubernetes;
use serde_json::{Value, json};

use crate::documented::block;
use crate::helm::{self, Objects, RELEASE};

/// Timeout for a stored object, such as a policy, to take effect. A busy machine needs seconds.
pub(crate) use leasehold_testbed::wait::LONG as SOON;

/// The release has its own rights, or the rights of the chart leasehold-cluster.
pub(crate) const RIGHTS: [&str; 2] = [
    r#"leasehold.rights="release""#,
    r#"leasehold.rights="cluster""#,
];

pub(crate) struct Installed {
    pub(crate) kubernetes: Arc<Kubernetes>,
    pub(crate) namespace: String,
    pub(crate) objects: Objects,
}

impl Installed {
    /// Installs `installation` with `changes` in a new namespace that enforces the Pod Security
    /// level "restricted". `changes` must disable the Prometheus operator's objects, because this
    /// cluster does not have their kinds.
    pub(crate) async fn new(installation: &str, changes: &[&str]) -> Self {
        let kubernetes = Kubernetes::shared().await;
        let namespace = kubernetes.namespace().await;
        if changes.contains(&RIGHTS[1]) {
            install_cluster_chart(&kubernetes, &namespace).await;
        }
        restrict(&kubernetes.client(), &namespace).await;
        // Policies are cluster-scoped, and other tests use this cluster too.
        let only_here = format!(
            r#"inject.namespaceSelector={{"matchLabels":{{"kubernetes.io/metadata.name":"{namespace}"}}}}"#
        );
        let changes = [&[only_here.as_str()], changes].concat();
        let rendered = render(installation, &namespace, &changes);
        kubernetes.apply(&namespace, &rendered).await;
        Self {
            kubernetes,
            namespace,
            objects: Objects::parse(&rendered),
        }
    }

    /// Like [`new`](Self::new), but with the values of a block of a page on top of `installation`,
    /// and with the value `set`.
    pub(crate) async fn documented(page: &str, file: &str, installation: &str, set: &str) -> Self {
        let kubernetes = Kubernetes::shared().await;
        let namespace = kubernetes.namespace().await;
        if set.contains("leasehold.rights=cluster") {
            install_cluster_chart(&kubernetes, &namespace).await;
        }
        restrict(&kubernetes.client(), &namespace).await;
        let values = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
        fs::write(values.path(), block(page, file)).unwrap();
        let base = helm::values(installation);
        let files = [base.as_path(), values.path()].map(|file| file.to_str().unwrap());
        let arguments = ["--values", files[0], "--values", files[1], "--set", set];
        let place = ["--namespace", &namespace, "--skip-tests"];
        let arguments = [&arguments[..], &place].concat();
        let rendered = helm::render_chart(&helm::chart(), &arguments).unwrap();
        kubernetes.apply(&namespace, &rendered).await;
        Self {
            objects: Objects::parse(&rendered),
            kubernetes,
            namespace,
        }
    }

    pub(crate) fn pods(&self, client: Client) -> Api<Pod> {
        Api::namespaced(client, &self.namespace)
    }

    pub(crate) fn label(&self) -> String {
        format!("leasehold.dev/{}.{RELEASE}", self.namespace)
    }

    pub(crate) async fn pod(&self, name: &str) -> Pod {
        let created = self.try_pod(name).await;
        created.unwrap_or_else(|error| panic!("create {name}: {error}"))
    }

    /// Like [`pod`](Self::pod), but returns the error if the API server does not admit the pod.
    pub(crate) async fn try_pod(&self, name: &str) -> kube::Result<Pod> {
        let mut pod = self.objects.template().clone();
        pod["metadata"]["name"] = json!(name);
        pod["spec"]["nodeName"] = json!("node-1");
        let pod = serde_json::from_value(pod).unwrap();
        let pods = self.pods(self.kubernetes.client());
        pods.create(&PostParams::default(), &pod).await
    }

    pub(crate) async fn client_of(&self, pod: &Pod) -> Client {
        let credentials = self.kubernetes.credentials(pod).await;
        self.kubernetes.client_as(&credentials)
    }
}

/// Installs the chart leasehold-cluster. Other tests share the cluster, and test the policies of a
/// release, so the chart's policies apply only to the namespaces of this function's callers.
pub(crate) async fn install_cluster_chart(kubernetes: &Kubernetes, namespace: &str) {
    let label = "testbed.leasehold.dev/rights";
    let labelled = json!({"metadata": {"labels": {label: "cluster"}}});
    let namespaces: Api<Namespace> = Api::all(kubernetes.client());
    let patch = Patch::Merge(labelled);
    namespaces
        .patch(namespace, &PatchParams::default(), &patch)
        .await
        .unwrap();
    let objects = Objects::parse(&helm::render_chart(&helm::cluster_chart(), &[]).unwrap());
    let here = json!({"namespaceSelector": {"matchLabels": {label: "cluster"}}});
    let limited = objects.iter().cloned().map(|mut object| {
        if object["kind"] == "ValidatingAdmissionPolicyBinding" {
            object["spec"]["matchResources"] = here.clone();
        }
        object.to_string()
    });
    let limited = limited.collect::<Vec<_>>().join("\n---\n");
    kubernetes.apply("default", &limited).await;
}

pub(crate) fn render(installation: &str, namespace: &str, changes: &[&str]) -> String {
    let file = helm::values(installation);
    let mut arguments = vec!["--values", file.to_str().unwrap(), "--namespace", namespace];
    // Skips the objects of `helm test`, as `helm install` does.
    arguments.push("--skip-tests");
    arguments.extend(changes.iter().flat_map(|change| ["--set-json", *change]));
    helm::render_chart(&helm::chart(), &arguments).unwrap()
}

async fn restrict(client: &Client, namespace: &str) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let labels = json!({"metadata": {"labels": {
        "pod-security.kubernetes.io/enforce": "restricted",
    }}});
    let parameters = PatchParams::default();
    let patched = namespaces
        .patch(namespace, &parameters, &Patch::Merge(labels))
        .await;
    patched.unwrap();
}

/// Patches a pod's status with a merge patch, as the daemon does.
pub(crate) async fn patch_status(
    pods: &Api<Pod>,
    name: &str,
    patch: Value,
    dry_run: bool,
) -> Result<Pod, String> {
    let parameters = PatchParams {
        dry_run,
        ..PatchParams::default()
    };
    let patched = pods
        .patch_status(name, &parameters, &Patch::Merge(patch))
        .await;
    patched.map_err(|error| error.to_string())
}

pub(crate) fn foreign_pod(name: &str, spec: &Value) -> Pod {
    let pod = json!({"metadata": ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }, "spec": spec});
    serde_json::from_value(pod).unwrap()
}
