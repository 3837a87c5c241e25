//! The publisher on the pod of this daemon; a build without the feature `kubernetes` has none.

use std::io;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::watch;

#[cfg(feature = "kubernetes")]
pub(super) use super::kubernetes::find;
use crate::election::{Notice, Status, Transition};
use crate::publish::metrics::Metrics;
use crate::publish::render::Identification;

/// Publishes on a pod: the label follows the status, and events are reported as Events.
pub(super) trait PodPublisher: Send + Sync {
    /// Reports a change of role.
    fn transition(&self, transition: &Transition);

    /// Reports a notice of the election.
    fn notice(&self, notice: &Notice);

    /// Reports a failed renewal.
    fn renewal_failed(&self, why: &str);

    /// Waits briefly until the label no longer says leader. Call it after the status says so.
    fn demoted(&self) -> Pin<Box<dyn Future<Output = ()> + Send>>;

    /// Waits briefly until the label no longer says leader and all Events were sent.
    fn last_words(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// Starts a publisher. Must be called inside a tokio runtime.
pub(super) type StartPublisher = Box<
    dyn FnOnce(
        &Identification,
        &watch::Receiver<Status>,
        &Metrics,
    ) -> io::Result<Arc<dyn PodPublisher>>,
>;

/// Rejects a configuration that requires Kubernetes.
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
