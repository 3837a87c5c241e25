//! Runs other locks and elections under the same faults. The report then compares how often their
//! holders and leasehold's holders overlap.

use std::path::{Path, PathBuf};

use leasehold_testbed::kubernetes::Place;
use leasehold_testbed::{DaemonTimings, Etcd, Failure, Host, Kubernetes, Launch, Storage};
use rustix::process::Signal;

use crate::hand_made::Design;
use crate::world::Places;

const LEASE: &str = "client-go";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rival {
    HandMade(Design),
    /// Jobs run under `etcdctl lock NAME COMMAND`.
    Etcdctl,
    /// A program that uses client-go's leader election with a real API server. Like a controller,
    /// the program works until its context is cancelled, and exits when it loses the lease.
    ClientGo,
}

impl Rival {
    pub(crate) const ALL: [Self; 5] = [
        Self::HandMade(Design::TtlIndex),
        Self::HandMade(Design::FindAndModify),
        Self::HandMade(Design::ShedLock),
        Self::Etcdctl,
        Self::ClientGo,
    ];

    /// Returns the name of the lock. The names of its jobs start with this name.
    pub(crate) fn lock(self) -> &'static str {
        match self {
            Self::HandMade(design) => design.lock(),
            Self::Etcdctl => "etcdctl-lock",
            Self::ClientGo => LEASE,
        }
    }

    /// Returns a job's launch settings. The caller adds the host.
    pub(crate) fn launch(
        self,
        (identity, millis): (&str, u64),
        timings: DaemonTimings,
        places: &Places,
    ) -> Result<Launch, Failure> {
        let journal = places.journal(self.lock());
        let millis = millis.to_string();
        let needs = || Failure::new(format!("{} needs its programs", self.lock()));
        Ok(match self {
            Self::HandMade(design) => Launch::new(&places.harness)
                .arguments(["rival", "--identity", identity, "--design", design.lock()])
                .arguments(["--millis", &millis])
                .argument(format!("--life={}", timings.lease_duration.as_millis()))
                .arguments(["--journal".as_ref(), journal.as_os_str()])
                .arguments(["--uri-file".as_ref(), places.uri_file.as_os_str()]),
            Self::Etcdctl => {
                let cluster = places.cluster.as_ref().ok_or_else(needs)?;
                Launch::new(cluster.etcdctl.as_ref().ok_or_else(needs)?)
                    .argument(format!("--endpoints={}", cluster.etcd.endpoints()))
                    .argument("lock")
                    .argument(format!("--ttl={}", timings.lease_duration.as_secs()))
                    .arguments([self.lock(), "--"])
                    .argument(&places.harness)
                    .arguments(["job", "--identity", identity, "--millis", &millis])
                    .arguments(["--journal".as_ref(), journal.as_os_str()])
                    .env("LEASEHOLD_TOKEN", "0")
            }
            Self::ClientGo => {
                let cluster = places.cluster.as_ref().ok_or_else(needs)?;
                let kubeconfig = cluster.kubernetes.directory().join("kubeconfig");
                let millis_of = |time: std::time::Duration| format!("{}ms", time.as_millis());
                Launch::new(cluster.elector.as_ref().ok_or_else(needs)?)
                    .argument(format!("-kubeconfig={}", kubeconfig.display()))
                    .argument(format!("-lease={LEASE}"))
                    .argument(format!("-identity={identity}"))
                    .argument(format!("-directory={}", places.directory.display()))
                    .argument(format!("-journal={}", journal.display()))
                    .argument(format!("-work={millis}ms"))
                    .argument(format!(
                        "-lease-duration={}",
                        millis_of(timings.lease_duration)
                    ))
                    .argument(format!(
                        "-renew-deadline={}",
                        millis_of(timings.renew_deadline)
                    ))
                    .argument(format!(
                        "-retry-period={}",
                        millis_of(timings.renew_interval)
                    ))
            }
        })
    }
}

/// An API server on its own host, an etcd on the hosts of the replica set's members, and the
/// programs that use them.
pub(crate) struct Cluster {
    pub(crate) kubernetes: Kubernetes,
    pub(crate) etcd: Etcd,
    etcdctl: Option<PathBuf>,
    elector: Option<PathBuf>,
}

impl Cluster {
    pub(crate) async fn start(
        members: &[Host],
        server: Host,
        (etcdctl, elector): (Option<&Path>, Option<&Path>),
    ) -> Result<Self, Failure> {
        let etcd = Etcd::start_on(members, Storage::default()).await?;
        Ok(Self {
            kubernetes: Kubernetes::start_on(server, &etcd.endpoints()).await?,
            etcd,
            etcdctl: etcdctl.map(Path::to_owned),
            elector: elector.map(Path::to_owned),
        })
    }

    /// Creates a namespace whose pods have the permissions of a sidecar.
    pub(crate) async fn namespace(&self) -> String {
        let namespace = self.kubernetes.namespace().await;
        self.kubernetes.grant(&namespace).await;
        namespace
    }

    pub(crate) async fn pod(&self, namespace: &str, number: usize) -> Place {
        let name = format!("orders-{number}");
        self.kubernetes.place(namespace, &name, "orders").await
    }

    pub(crate) fn stall(&self, stalled: bool) {
        let signal = if stalled { Signal::STOP } else { Signal::CONT };
        self.kubernetes.signal_api_server(signal);
    }
}
