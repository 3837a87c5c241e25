//! Refuses to contend where a kustomization moved the pod away from the namespace that its flags
//! were rendered for.

use tracing::error;

use super::kubernetes::{self, Cluster, KubernetesError};
#[cfg(feature = "kubernetes")]
pub(in crate::cli) use super::kubernetes::{access, pod};
use crate::config::{Config, RenderedFor};

/// Reason why the daemon cannot run in this pod as configured.
#[derive(Debug, thiserror::Error)]
pub enum PodError {
    /// Labels are required, but the cluster or the pod is unknown.
    #[error(transparent)]
    Kubernetes(#[from] KubernetesError),
    /// The lease is that of another namespace or service account.
    #[error(
        "lease.name {lease} belongs to {rendered_for}, for which the manifests were rendered, and this pod is \
         of {pod}: replicas of both would share one leader; render the chart again with \
         --namespace (kustomize: helmCharts[].namespace), or set leasehold.leaseName to a name that does not begin with \
         that namespace"
    )]
    Moved {
        /// The lease.
        lease: String,
        /// Namespace and account of the manifests.
        rendered_for: String,
        /// Namespace and account of the pod.
        pod: String,
    },
}

/// Finds the API server and this pod; `None` if labels and Events are off, or belong to another pod.
///
/// # Errors
/// [`PodError`], of which each is an error of configuration.
pub(super) fn find(config: &Config) -> Result<Option<Cluster>, PodError> {
    let Some(rendered) = moved(config) else {
        return Ok(kubernetes::find(config)?);
    };
    let lease = &config.lease.name;
    let pod = of_pod(config);
    if rendered.names(lease) {
        return Err(PodError::Moved {
            lease: lease.to_string(),
            rendered_for: rendered.to_string(),
            pod,
        });
    }
    error!(
        %lease, rendered_for = %rendered, %pod,
        "manifests were rendered for another namespace or service account; not publishing a label or Events, \
         because the admission policies do not apply to this pod; render the chart again with --namespace"
    );
    Ok(None)
}

/// Returns the place that the manifests were rendered for, if this pod runs elsewhere.
pub(in crate::cli) fn moved(config: &Config) -> Option<&RenderedFor> {
    let rendered = config.kubernetes.rendered_for.as_ref()?;
    let (namespace, account) = (namespace(config), config.kubernetes.pod_account.as_deref());
    let differs = rendered.differs(namespace.as_deref(), account);
    differs.then_some(rendered)
}

/// Returns the namespace and service account of this pod.
pub(in crate::cli) fn of_pod(config: &Config) -> String {
    let namespace = namespace(config).unwrap_or_default();
    let account = config.kubernetes.pod_account.as_deref();
    format!("{namespace}/{}", account.unwrap_or("(unknown account)"))
}

fn namespace(config: &Config) -> Option<String> {
    config.kubernetes.pod_namespace.clone()
}
