//! Refuses to contend where a kustomization moved the pod away from the namespace that its flags
//! were rendered for.

use tracing::error;

use super::kubernetes::{self, Cluster, KubernetesError};
#[cfg(feature = "kubernetes")]
pub(in crate::cli) use super::kubernetes::{access, pod};
use crate::config::{Config, Contended, Misplaced};

/// Reason why the daemon cannot run in this pod as configured.
#[derive(Debug, thiserror::Error)]
pub enum PodError {
    /// Labels are required, but the cluster or the pod is unknown.
    #[error(transparent)]
    Kubernetes(#[from] KubernetesError),
    /// The lease is that of another namespace or service account.
    #[error(transparent)]
    Moved(#[from] Misplaced),
}

/// Finds the API server and this pod; `None` if labels and Events are off, or belong to another pod.
///
/// # Errors
/// [`PodError`], of which each is an error of configuration.
pub(super) fn find(config: &Config) -> Result<Option<Cluster>, PodError> {
    let (lease, placement) = (&config.lease.name, &config.kubernetes.placement);
    placement.check(Contended::Lease, lease)?;
    let Some(rendered) = placement.moved() else {
        return Ok(kubernetes::find(config)?);
    };
    error!(
        %lease, rendered_for = %rendered, pod = %placement,
        "manifests were rendered for another namespace or service account; not publishing a label or Events, \
         because the admission policies do not apply to this pod; render the chart again with --namespace"
    );
    Ok(None)
}
