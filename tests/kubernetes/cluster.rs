//! A namespace and a lease for one test: pods with the rights that the chart grants, and daemons
//! that run as these pods.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
pub(crate) use leasehold_testbed::kubernetes::{Place, routed_to};
pub(crate) use leasehold_testbed::wait::{LONG, eventually};
use leasehold_testbed::{
    Daemon, DaemonBuilder, DaemonTimings, Kubernetes, Proxy, ReplicaSet, SharedSet, StoredLease,
    run,
};
use serde_json::json;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_leasehold");
/// All tests use this lease name, because each test has its own namespace and database.
pub(crate) const LEASE: &str = "orders";
pub(crate) const LABEL: &str = "leasehold.dev/orders";

const APP: &str = "orders";

pub(crate) const OF_SERVICE: &str = "kubernetes.io/service-name=leader";

static SET: SharedSet = SharedSet::new(ReplicaSet::builder);

pub(crate) struct Cluster {
    pub(crate) kubernetes: Arc<Kubernetes>,
    pub(crate) namespace: String,
    set: Arc<ReplicaSet>,
}

pub(crate) fn in_cluster(test: impl AsyncFnOnce(Cluster)) {
    run(async {
        let cluster = Cluster::without_rights().await;
        cluster.grant().await;
        test(cluster).await;
    });
}

impl Cluster {
    pub(crate) async fn without_rights() -> Self {
        let kubernetes = Kubernetes::shared().await;
        let namespace = kubernetes.namespace().await;
        let set = SET.get().await;
        Self {
            kubernetes,
            namespace,
            set,
        }
    }

    pub(crate) async fn grant(&self) {
        self.kubernetes.grant(&self.namespace).await;
    }

    pub(crate) async fn service(&self) {
        let route = self.kubernetes.route_to_leader(&self.namespace, APP, LABEL);
        route.await;
    }

    pub(crate) async fn place(&self, name: &str) -> Place {
        self.kubernetes.place(&self.namespace, name, APP).await
    }

    /// Builds a daemon with a lease of 6 s and an immediate handoff.
    pub(crate) fn candidate(&self, place: &Place) -> DaemonBuilder {
        self.candidate_at(place, self.kubernetes.environment())
    }

    pub(crate) fn candidate_through(&self, place: &Place, proxy: &Proxy) -> DaemonBuilder {
        self.candidate_at(place, self.kubernetes.environment_through(proxy))
    }

    fn candidate_at(&self, place: &Place, environment: [(String, String); 2]) -> DaemonBuilder {
        let builder = Daemon::builder(PROGRAM)
            .lease(LEASE)
            .identity(&place.pod.name_any())
            .uri(&self.set.uri())
            .timings(DaemonTimings::DEMO)
            .handoff_delay("0s")
            .flag(&format!("--mongodb-database={}", self.namespace));
        place.sidecar(builder, environment)
    }

    pub(crate) fn candidate_behind_proxy(&self, place: &Place) -> (Proxy, DaemonBuilder) {
        let proxy = self.set.proxy();
        let uri = proxy.uri(&self.set.uri());
        (proxy, self.candidate(place).uri(&uri))
    }

    pub(crate) fn stored(&self) -> StoredLease {
        StoredLease::new(&self.set.client(), &self.namespace, "leases", LEASE)
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        self.kubernetes.objects(&self.namespace)
    }

    pub(crate) async fn label(&self, name: &str) -> Option<String> {
        self.pods()
            .get(name)
            .await
            .unwrap()
            .labels()
            .get(LABEL)
            .cloned()
    }

    pub(crate) async fn wait_routes_to(&self, name: &str) {
        eventually(&format!("the Service routes to {name}"), async || {
            self.endpoints().await == [name]
        })
        .await;
    }

    pub(crate) async fn wait_label(&self, name: &str, value: &str) -> Duration {
        eventually(&format!("{name} says {value}"), async || {
            self.label(name).await.as_deref() == Some(value)
        })
        .await
    }

    /// Changes or removes a pod's label, as another authorized client would.
    pub(crate) async fn interfere(&self, name: &str, value: Option<&str>) {
        self.set_label(name, LABEL, value).await;
    }

    pub(crate) async fn set_label(&self, name: &str, label: &str, value: Option<&str>) {
        let patch = Patch::Merge(json!({ "metadata": { "labels": { label: value } } }));
        let (pods, parameters) = (self.pods(), PatchParams::default());
        pods.patch(name, &parameters, &patch).await.unwrap();
    }

    pub(crate) async fn endpoints(&self) -> Vec<String> {
        let of_service = ListParams::default().labels(OF_SERVICE);
        let slices = self.slices().list(&of_service).await.unwrap();
        slices.iter().flat_map(routed_to).collect()
    }

    pub(crate) fn slices(&self) -> Api<EndpointSlice> {
        self.kubernetes.objects(&self.namespace)
    }
}

pub(crate) async fn wait_in_sync(daemon: &Daemon) {
    eventually("the daemon reports its label in sync", async || {
        daemon.metric("leasehold_label_in_sync").await == 1.0
    })
    .await;
}

pub(crate) async fn wait_label_failures(daemon: &Daemon, count: f64) {
    let failures = "leasehold_publish_failures_total{lease=\"orders\",surface=\"label\"}";
    eventually("the daemon failed to write the label", async || {
        daemon.metric(failures).await >= count
    })
    .await;
}
