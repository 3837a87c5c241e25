//! Runs a daemon like a sidecar in a pod, with the pod's settings and its service account's
//! permissions.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;

use super::Credentials;
use crate::DaemonBuilder;

/// Grants the namespace's default service account exactly the permissions that a sidecar may need.
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

/// Returns a Service that routes to the pods of `app` whose label has the value `leader`.
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

/// A pod, and the credentials of a process in it.
pub struct Place {
    /// The pod, as the API server returned it.
    pub pod: Pod,
    /// The pod's credentials, removed on drop.
    pub credentials: Credentials,
}

impl Place {
    /// Passes the pod's credentials to a daemon, and sets these variables, which contain the API
    /// server's address; see [`Kubernetes::environment`](super::Kubernetes::environment).
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

    /// Like [`mounted`](Self::mounted), but the daemon also requires Kubernetes and gets its pod's
    /// identity from downward API variables.
    ///
    /// # Panics
    /// If the pod was not created by an API server.
    pub fn sidecar(
        &self,
        daemon: DaemonBuilder,
        environment: [(String, String); 2],
    ) -> DaemonBuilder {
        let uid = self.pod.uid().expect("a created pod has a uid");
        self.mounted(daemon, environment)
            .flag("--kubernetes-enabled=on")
            .env("POD_NAME", self.pod.name_any())
            .env("POD_UID", uid)
    }
}

/// Returns the names of the pods that a Service's EndpointSlice routes to.
pub fn routed_to(slice: &EndpointSlice) -> Vec<String> {
    let ready = slice.endpoints.iter().filter(|endpoint| {
        let conditions = endpoint.conditions.as_ref();
        conditions.and_then(|c| c.ready).unwrap_or(true)
    });
    ready
        .filter_map(|endpoint| endpoint.target_ref.as_ref()?.name.clone())
        .collect()
}
