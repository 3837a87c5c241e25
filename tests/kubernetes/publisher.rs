//! Runs the publisher of one pod without a daemon. The test chooses the status to publish.

use std::path::PathBuf;
use std::time::Duration;

use kube::ResourceExt;
use leasehold::config::{KubernetesConfig, KubernetesEnabled, Placement};
use leasehold::election::{
    Authority, BootTime, Identity, ResourceName, Role, Session, Status, Token,
};
use leasehold::publish::Surface;
use leasehold::publish::kubernetes::{Access, Api, Kubernetes, Pod, Tasks};
use leasehold::publish::metrics::Metrics;
use leasehold::publish::render::Identification;
use leasehold_testbed::daemon::sample;
use tokio::sync::watch;

use crate::cluster::{Cluster, LEASE, Place};

/// Longer than a test, so the test fails if the publisher waits for the label.
pub(crate) const LABEL_WAIT: Duration = Duration::from_secs(60);

pub(crate) struct Publisher {
    status: watch::Sender<Status>,
    metrics: Metrics,
    pub(crate) kubernetes: Kubernetes,
    _tasks: Tasks,
}

impl Publisher {
    pub(crate) fn start(cluster: &Cluster, place: &Place, repair_interval: Duration) -> Self {
        let [(_, host), (_, port)] = cluster.kubernetes.environment();
        let directory = place.credentials.directory();
        let access = Access::find(Some(&host), Some(&port), directory).unwrap();
        Self::over(Api::new(access), place, repair_interval)
    }

    /// Starts a publisher whose credentials stay valid after the pod has been deleted.
    pub(crate) fn start_as_administrator(
        cluster: &Cluster,
        place: &Place,
        repair_interval: Duration,
    ) -> Self {
        let client = cluster.kubernetes.client();
        Self::over(
            Api::over("the API server".to_owned(), move || Ok(client.clone())),
            place,
            repair_interval,
        )
    }

    fn over(api: Api, place: &Place, repair_interval: Duration) -> Self {
        let pod = &place.pod;
        let namespace = pod.namespace().unwrap();
        let settings = KubernetesConfig {
            enabled: KubernetesEnabled::On,
            pod_name: None,
            pod_uid: None,
            placement: Placement {
                namespace: None,
                account: None,
                rendered_for: None,
            },
            credentials: PathBuf::new(),
            label_prefix: "leasehold.dev".to_owned(),
            label_wait: LABEL_WAIT,
            demote_others: false,
            events: false,
        };
        let who = Identification {
            lease: ResourceName::new(LEASE).unwrap(),
            identity: Identity::new(pod.name_any()).unwrap(),
            boot_id: None,
        };
        let (status, receiver) = watch::channel(follower());
        let (_, store) = watch::channel(None);
        let metrics = Metrics::new(&who, receiver.clone(), store).unwrap();
        let published = Kubernetes::spawn(
            api,
            Pod::new(&pod.name_any(), &namespace, &pod.uid().unwrap()).unwrap(),
            &settings,
            repair_interval,
            &who,
            &receiver,
            &metrics,
        );
        let (kubernetes, tasks) = published.unwrap();
        Self {
            status,
            metrics,
            kubernetes,
            _tasks: tasks,
        }
    }

    pub(crate) fn set(&self, status: Status) {
        self.status.send_replace(status);
    }

    pub(crate) fn failures(&self) -> u64 {
        self.metrics.publish_failures(Surface::Label)
    }

    pub(crate) fn in_sync(&self) -> bool {
        let text = self.metrics.text().unwrap();
        sample(&text, "leasehold_label_in_sync") == Some(1.0)
    }
}

pub(crate) fn follower() -> Status {
    Status {
        role: Role::Follower,
        ..Status::initial(Session::from_bytes([1; 16]), BootTime::default())
    }
}

pub(crate) fn leader(valid_until: BootTime) -> Status {
    let token = Token::new(7).unwrap();
    Status {
        role: Role::Leader,
        authority: Some(Authority { token, valid_until }),
        ..follower()
    }
}
