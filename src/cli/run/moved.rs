//! Refuses to contend for the lease of another namespace or service account, where a kustomization
//! moved the pod from the place that its manifests were rendered for.

use super::kubernetes::{self, Cluster, KubernetesError};
use crate::config::{Config, Contended, Misplaced};

/// Reason why the daemon cannot run in this pod as configured.
#[derive(Debug, thiserror::Error)]
pub enum PodError {
    /// Labels are required, but the cluster or the pod is unknown.
    #[error(transparent)]
    Kubernetes(#[from] KubernetesError),
    /// The lease belongs to another namespace or service account.
    #[error(transparent)]
    Moved(#[from] Misplaced),
}

/// Finds the API server and this pod; `None` if labels and Events are off, or belong to another pod.
///
/// # Errors
/// A [`PodError`], always an error of configuration.
pub(super) fn find(config: &Config) -> Result<Option<Cluster>, PodError> {
    let placement = &config.kubernetes.placement;
    placement.check(Contended::Lease, &config.lease.name)?;
    Ok(kubernetes::find(config)?)
}
