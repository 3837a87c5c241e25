//! Stands in for `kubernetes.rs` in a build without the feature `kubernetes`:
//! no value of these types exists.

use std::convert::Infallible;
use std::future::Ready;
use std::io;

use tokio::sync::watch;
use tracing::{debug, warn};

use super::files::SERVICE_HOST;
use crate::cli::CommandError;
use crate::config::{Config, KubernetesEnabled};
use crate::election::{Notice, Status, Transition};
use crate::exit;
use crate::publish::metrics::Metrics;
use crate::publish::render::Identification;

/// A cluster to publish in.
pub(super) struct Cluster(Infallible);

/// A publisher of labels and Events.
#[derive(Clone)]
pub(super) struct Kubernetes(Infallible);

/// The tasks of a publisher.
pub(super) struct Tasks(Infallible);

/// Finds no cluster.
pub(super) fn find(config: &Config) -> Result<Option<Cluster>, CommandError> {
    match config.kubernetes.enabled {
        KubernetesEnabled::On => Err(CommandError::new(
            exit::CONFIGURATION,
            "kubernetes.enabled is \"on\"",
        )
        .because("this binary was built without the feature kubernetes")
        .to_fix("use a build that has the feature, or set kubernetes.enabled to \"off\"")),
        KubernetesEnabled::Auto => {
            let lease = &config.lease.name;
            match std::env::var_os(SERVICE_HOST) {
                Some(_) => {
                    warn!(%lease, "built without Kubernetes; not publishing a label or Events")
                }
                None => debug!(%lease, "not in a Kubernetes cluster"),
            }
            Ok(None)
        }
        KubernetesEnabled::Off => Ok(None),
    }
}

impl Cluster {
    pub(super) fn spawn(
        self,
        _: &Identification,
        _: &watch::Receiver<Status>,
        _: &Metrics,
    ) -> io::Result<(Kubernetes, Tasks)> {
        match self.0 {}
    }
}

impl Kubernetes {
    pub(super) fn transition(&self, _: &Transition) {
        match self.0 {}
    }

    pub(super) fn notice(&self, _: &Notice) {
        match self.0 {}
    }

    pub(super) fn renewal_failed(&self, _: &str) {
        match self.0 {}
    }

    pub(super) fn demoted(&self) -> Ready<()> {
        match self.0 {}
    }

    pub(super) async fn last_words(&self) {
        match self.0 {}
    }
}

impl Tasks {
    pub(super) async fn ended(&mut self) -> (&'static str, io::Error) {
        match self.0 {}
    }
}
