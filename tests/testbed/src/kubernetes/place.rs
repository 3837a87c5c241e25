//! A pod as the place of a process: what a daemon needs to run as its sidecar,
//! and what the pod's service account may do.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;

use super::Credentials;
use crate::DaemonBuilder;

/// Every right that a sidecar may need, and no other, for the namespace's own
/// service account.
pub(super) const RIGHTS: &str = "
kind: Role
apiVersion: rbac.authorization.k8s.io/v1
metadata: {name: leasehold}
rules:
- {apiGroups: [''], resources: [pods/status], verbs: [patch]}
- {apiGroups: [''], resources: [pods], verbs: [list]}
- {apiGroups: [events.k8s.io], resources: [events], verbs: [create, patch]}
---
kind: RoleBinding
apiVersion: rbac.authorization.k8s.io/v1
metadata: {name: leasehold}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: leasehold}
subjects: [{kind: ServiceAccount, name: default}]
";

/// Routes to the pods of `app` whose label says leader.
pub(super) fn service(app: &str, label: &str) -> String {
    format!(
        "
kind: Service
apiVersion: v1
metadata: {{name: leader}}
spec:
  selector: {{app: {app}, {label}: leader}}
  ports: [{{port: 80}}]
"
    )
}

/// A pod, and what a process in it authenticates with.
pub struct Place {
    /// The pod.
    pub pod: Pod,
    /// Its credentials, which are removed with this.
    pub credentials: Credentials,
}

impl Place {
    /// A daemon that finds the credentials as if mounted, and the API server
    /// in this environment: see [`Kubernetes::environment`](super::Kubernetes::environment).
    pub fn mounted(
        &self,
        mut daemon: DaemonBuilder,
        environment: [(String, String); 2],
    ) -> DaemonBuilder {
        let directory = self.credentials.directory().display();
        daemon = daemon.flag(&format!("--kubernetes-credentials={directory}"));
        for (name, value) in environment {
            daemon = daemon.env(&name, value);
        }
        daemon
    }

    /// As [`mounted`](Self::mounted); it demands Kubernetes, and knows its pod
    /// as the downward API tells it.
    ///
    /// # Panics
    /// When the pod was not made by an API server.
    pub fn sidecar(
        &self,
        daemon: DaemonBuilder,
        environment: [(String, String); 2],
    ) -> DaemonBuilder {
        let uid = self.pod.uid().expect("a pod that was made has one");
        self.mounted(daemon, environment)
            .flag("--kubernetes-enabled=on")
            .env("POD_NAME", self.pod.name_any())
            .env("POD_UID", uid)
    }
}

/// The names of the pods that a slice of a Service routes to.
pub fn routed_to(slice: &EndpointSlice) -> Vec<String> {
    let ready = slice.endpoints.iter().filter(|endpoint| {
        let conditions = endpoint.conditions.as_ref();
        conditions.and_then(|c| c.ready).unwrap_or(true)
    });
    ready
        .filter_map(|endpoint| endpoint.target_ref.as_ref()?.name.clone())
        .collect()
}
