//! Decides if this daemon publishes on its pod, and starts to.

use std::io;

use tokio::sync::watch;
use tracing::{debug, error, info, warn};

use crate::cli::CommandError;
use crate::config::{Config, KubernetesConfig, KubernetesEnabled, RENDER_AGAIN};
use crate::election::Status;
use crate::exit;
use crate::publish::kubernetes::{
    Access, Api, Examiner, KubernetesOptions, REPAIR_INTERVAL, access, pod,
};
pub(super) use crate::publish::kubernetes::{Kubernetes, Tasks};
use crate::publish::metrics::Metrics;
use crate::publish::render::Identification;

/// The API server, and the settings of the label and the Events on this pod.
pub(super) struct Cluster {
    access: Access,
    options: KubernetesOptions,
    /// True if an admission policy is expected, because a chart rendered the manifests.
    restricted: bool,
}

impl Cluster {
    /// Starts publishing. Must be called inside a tokio runtime.
    pub(super) fn spawn(
        self,
        who: &Identification,
        status: &watch::Receiver<Status>,
        metrics: &Metrics,
    ) -> io::Result<(Kubernetes, Tasks)> {
        let Self {
            access,
            options,
            restricted,
        } = self;
        let examiner = restricted.then(|| {
            let (access, pod) = (access.clone(), options.pod.clone());
            Examiner::new(access, pod, &options.label_prefix, who)
        });
        let api = Api::new(access);
        let (kubernetes, mut tasks) = Kubernetes::spawn(api, options, who, status, metrics)?;
        if let Some(examiner) = examiner {
            tasks.verify_restriction(examiner, who.lease.to_string());
        }
        Ok((kubernetes, tasks))
    }
}

/// Returns the error for `kubernetes.enabled = "on"` that cannot be satisfied.
fn unavailable(missing: String) -> CommandError {
    CommandError::new(exit::CONFIGURATION, "kubernetes.enabled is \"on\"").because(missing)
}

/// Finds the API server and this pod; `None` if labels and Events are off, or if the manifests were
/// rendered for another place.
pub(super) fn find(config: &Config) -> Result<Option<Cluster>, CommandError> {
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
    Ok(Some(Cluster {
        access,
        options,
        restricted: placement.rendered_for.is_some(),
    }))
}
