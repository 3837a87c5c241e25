//! Decides whether this daemon publishes on its pod, and starts the publisher.

use tracing::{debug, error, info, warn};

use super::pod::StartPublisher;
use crate::cli::CommandError;
use crate::config::{Config, KubernetesEnabled};
use crate::exit;
use crate::publish::kubernetes::{Api, Examiner, Kubernetes, REPAIR_INTERVAL, access, pod};

fn unavailable(missing: String) -> CommandError {
    let what = "kubernetes.enabled = \"on\" cannot be satisfied";
    CommandError::new(exit::CONFIGURATION, what).because(missing)
}

/// Locates the API server and this pod. Returns `None` if labels and Events are off, if the
/// manifests were rendered for another namespace or service account, or if the API server or the
/// pod is unknown and `kubernetes.enabled` is not `on`.
pub(super) fn find(config: &Config) -> Result<Option<StartPublisher>, CommandError> {
    let (lease, settings) = (&config.lease.name, &config.kubernetes);
    let placement = &settings.placement;
    if settings.enabled == KubernetesEnabled::Off {
        return Ok(None);
    }
    if let Some(rendered) = placement.moved() {
        error!(
            %lease, rendered_for = %rendered, pod = %placement,
            "pod was moved: the admission policies do not apply, so no label and no Events; to fix: render the \
             chart with --namespace and the final release name"
        );
        return Ok(None);
    }
    let required = settings.enabled == KubernetesEnabled::On;
    let access = match access(&settings.credentials) {
        Ok(access) => access,
        Err(missing) if required => return Err(unavailable(missing)),
        Err(missing) => {
            debug!(%lease, why = missing, "not in a Kubernetes cluster; not publishing a label or Events");
            return Ok(None);
        }
    };
    let pod = match pod(settings, &access) {
        Ok(pod) => pod,
        Err(missing) if required => return Err(unavailable(missing)),
        Err(missing) => {
            warn!(%lease, why = missing, "pod identity unknown; not publishing a label or Events");
            return Ok(None);
        }
    };
    info!(
        %lease, %pod, label = format!("{}/{lease}", settings.label_prefix),
        "publishing on this pod"
    );
    let settings = settings.clone();
    Ok(Some(Box::new(move |who, status, metrics| {
        let (api, lease) = (Api::new(access.clone()), who.lease.clone());
        let (kubernetes, mut tasks) = Kubernetes::spawn(
            api,
            pod.clone(),
            &settings,
            REPAIR_INTERVAL,
            who,
            status,
            metrics,
        )?;
        // The chart rendered the manifests, so the cluster should have the chart's admission
        // policy.
        if settings.placement.rendered_for.is_some() {
            let examiner = Examiner::new(Api::new(access), pod, &settings.label_prefix, who);
            tasks.verify_restriction(examiner, lease.to_string());
        }
        tokio::spawn(async move {
            loop {
                // The candidate can lead without the label. The gauge leasehold_label_in_sync shows
                // that the label is no longer maintained.
                let (task, error) = tasks.ended().await;
                error!(%lease, task, %error, "pod publishing task ended unexpectedly; continuing without it");
            }
        });
        Ok(kubernetes)
    })))
}
