//! Publishes the status on this daemon's pod, if built with the feature `kubernetes`.

use std::io;

use tokio::sync::watch;

#[cfg(feature = "kubernetes")]
pub(super) use super::kubernetes::find;
use crate::election::Status;
use crate::publish::metrics::Metrics;
use crate::publish::render::Identification;

#[cfg(feature = "kubernetes")]
pub(super) use crate::publish::kubernetes::Kubernetes as PodPublisher;

/// Starts the publisher; must be called inside a tokio runtime.
pub(super) type StartPublisher = Box<
    dyn FnOnce(&Identification, &watch::Receiver<Status>, &Metrics) -> io::Result<PodPublisher>,
>;

#[cfg(not(feature = "kubernetes"))]
#[derive(Clone)]
pub(super) enum PodPublisher {}

#[cfg(not(feature = "kubernetes"))]
impl PodPublisher {
    pub(super) fn transition(&self, _: &crate::election::Transition) {}

    pub(super) fn notice(&self, _: &crate::election::Notice) {}

    pub(super) fn renewal_failed(&self, _: &str) {}

    pub(super) async fn demoted(self) {}

    pub(super) async fn last_words(&self) {}
}

/// Rejects `kubernetes.enabled = "on"`, and otherwise returns `None`, because this build lacks the
/// feature `kubernetes`.
#[cfg(not(feature = "kubernetes"))]
pub(super) fn find(
    config: &crate::config::Config,
) -> Result<Option<StartPublisher>, crate::cli::CommandError> {
    use crate::config::KubernetesEnabled;

    let lease = &config.lease.name;
    match config.kubernetes.enabled {
        KubernetesEnabled::On => {
            let what = "kubernetes.enabled = \"on\" cannot be satisfied";
            return Err(
                crate::cli::CommandError::new(crate::exit::CONFIGURATION, what)
                    .because("this binary was built without the feature kubernetes")
                    .to_fix(
                        "use a build that has the feature, or set kubernetes.enabled to \"off\"",
                    ),
            );
        }
        KubernetesEnabled::Auto if std::env::var_os(super::files::SERVICE_HOST).is_some() => {
            tracing::warn!(%lease, "built without Kubernetes; not publishing a label or Events");
        }
        KubernetesEnabled::Auto | KubernetesEnabled::Off => {}
    }
    Ok(None)
}
