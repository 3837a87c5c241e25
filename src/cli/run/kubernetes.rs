//! Decides if this daemon publishes on its pod, and starts the publisher.

use std::pin::Pin;
use std::sync::Arc;

use tracing::{debug, error, info, warn};

use super::pod::{PodPublisher, StartPublisher};
use crate::cli::CommandError;
use crate::config::{Config, KubernetesConfig, KubernetesEnabled, RENDER_AGAIN};
use crate::election::{Notice, Transition};
use crate::exit;
use crate::publish::kubernetes::{
    Api, Examiner, Kubernetes, KubernetesOptions, REPAIR_INTERVAL, access, pod,
};

impl PodPublisher for Kubernetes {
    fn transition(&self, transition: &Transition) {
        Self::transition(self, transition);
    }

    fn notice(&self, notice: &Notice) {
        Self::notice(self, notice);
    }

    fn renewal_failed(&self, why: &str) {
        Self::renewal_failed(self, why);
    }

    fn demoted(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(Self::demoted(self))
    }

    fn last_words(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(Self::last_words(self))
    }
}

fn unavailable(missing: String) -> CommandError {
    CommandError::new(
        exit::CONFIGURATION,
        "kubernetes.enabled = \"on\" cannot be satisfied",
    )
    .because(missing)
}

/// Finds the API server and this pod; `None` if labels and Events are off, or if the manifests were
/// rendered for another place.
pub(super) fn find(config: &Config) -> Result<Option<StartPublisher>, CommandError> {
    let lease = &config.lease.name;
    let KubernetesConfig {
        enabled,
        credentials,
        placement,
        ..
    } = &config.kubernetes;
    if *enabled == KubernetesEnabled::Off {
        return Ok(None);
    }
    if let Some(rendered) = placement.moved() {
        error!(
            %lease, rendered_for = %rendered, pod = %placement,
            "manifests were rendered for another namespace or service account; not publishing a label or Events, \
             because the admission policies do not apply to this pod; to fix: {RENDER_AGAIN}"
        );
        return Ok(None);
    }
    let required = *enabled == KubernetesEnabled::On;
    let access = match access(credentials) {
        Ok(access) => access,
        Err(missing) if required => return Err(unavailable(missing)),
        Err(missing) => {
            debug!(%lease, why = missing, "not in a Kubernetes cluster; not publishing a label or Events");
            return Ok(None);
        }
    };
    let pod = match pod(&config.kubernetes, &access) {
        Ok(pod) => pod,
        Err(missing) if required => return Err(unavailable(missing)),
        Err(missing) => {
            warn!(%lease, why = missing, "pod identity unknown; not publishing a label or Events");
            return Ok(None);
        }
    };
    info!(
        %lease, %pod, label = format!("{}/{lease}", config.kubernetes.label_prefix),
        "publishing on this pod"
    );
    let options = KubernetesOptions {
        pod,
        label_prefix: config.kubernetes.label_prefix.clone(),
        label_wait: config.kubernetes.label_wait,
        demote_others: config.kubernetes.demote_others,
        events: config.kubernetes.events,
        repair_interval: REPAIR_INTERVAL,
    };
    // A chart rendered the manifests, so an admission policy is expected.
    let restricted = placement.rendered_for.is_some();
    Ok(Some(Box::new(move |who, status, metrics| {
        let examiner = restricted.then(|| {
            let (access, pod) = (access.clone(), options.pod.clone());
            Examiner::new(access, pod, &options.label_prefix, who)
        });
        let api = Api::new(access);
        let (kubernetes, mut tasks) = Kubernetes::spawn(api, options, who, status, metrics)?;
        let lease = who.lease.clone();
        if let Some(examiner) = examiner {
            tasks.verify_restriction(examiner, lease.to_string());
        }
        tokio::spawn(async move {
            loop {
                // The candidate can lead without it. The gauge leasehold_label_in_sync shows that the
                // label is no longer maintained.
                let (task, error) = tasks.ended().await;
                error!(%lease, task, %error, "pod publishing task ended unexpectedly; continuing without it");
            }
        });
        Ok(Arc::new(kubernetes))
    })))
}
