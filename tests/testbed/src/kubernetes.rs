//! A private Kubernetes control plane: etcd, kube-apiserver and kube-controller-manager on loopback
//! ports.
//!
//! No kubelet runs, so the fixture only reports a [pod](Kubernetes::pod) as running. A process of
//! the test acts as the pod, with that pod's [credentials](Kubernetes::credentials) and
//! [environment](Kubernetes::environment).

mod control_plane;
mod credentials;
mod manifest;
mod place;
mod pod;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Namespace, Node, Pod, ServiceAccount};
use kube::api::{Api, DeleteParams, DynamicObject, ObjectMeta, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Client, Resource};
use tokio::sync::Mutex;

use rustix::process::Signal;

use crate::{Failure, Host, Proxy, Storage, kubernetes_programs};
use control_plane::{ControlPlane, Surroundings};

pub use credentials::Credentials;
pub use place::{Place, routed_to};

/// Maximum wait for a controller. Controllers act within milliseconds, but may take seconds to
/// start on a busy machine.
const CONTROLLER_DEADLINE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(10);
const NODE: &str = "node-1";

/// A running control plane. Dropping this value ends the processes.
///
/// ```no_run
/// # async fn example() {
/// let kubernetes = leasehold_testbed::Kubernetes::start().await;
/// let namespace = kubernetes.namespace().await;
/// let pod = kubernetes
///     .pod(&namespace, "orders-0", &[("app", "orders")], "default")
///     .await;
/// let credentials = kubernetes.credentials(&pod).await;
/// let client = kubernetes.client_as(&credentials);
/// # }
/// ```
pub struct Kubernetes {
    control_plane: ControlPlane,
    client: Client,
    namespaces: AtomicU32,
    nodes: AtomicU32,
    pods: AtomicU32,
}

impl Kubernetes {
    /// Starts a control plane with one node.
    ///
    /// # Panics
    /// If the control plane cannot be started.
    pub async fn start() -> Self {
        let started = Self::start_with(Surroundings::Own(None)).await;
        started.unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// Like [`start`](Self::start), but etcd flushes its data to this storage before it
    /// acknowledges a write, as in production.
    ///
    /// # Panics
    /// Like [`start`](Self::start).
    pub async fn start_durable(storage: Storage) -> Self {
        let started = Self::start_with(Surroundings::Own(Some(storage))).await;
        started.unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// Like [`start`](Self::start), but runs on a host, uses the etcd at these endpoints, and
    /// returns errors.
    ///
    /// # Errors
    /// If the control plane cannot be started.
    pub async fn start_on(host: Host, etcd: &str) -> Result<Self, Failure> {
        Self::start_with(Surroundings::Host(host, etcd.to_owned())).await
    }

    async fn start_with(surroundings: Surroundings) -> Result<Self, Failure> {
        let control_plane = ControlPlane::start(&kubernetes_programs()?, surroundings).await?;
        let client = control_plane.administrator();
        let kubernetes = Self {
            control_plane,
            client,
            namespaces: AtomicU32::new(0),
            nodes: AtomicU32::new(0),
            pods: AtomicU32::new(0),
        };
        assert_eq!(kubernetes.node().await, NODE);
        Ok(kubernetes)
    }

    /// Returns the control plane that the tests of a binary share. The first test starts the
    /// control plane, which then runs while any test holds it. Must be called inside
    /// [`run`](crate::run), whose runtime serves the clients of all tests.
    pub async fn shared() -> Arc<Self> {
        // A value in a static is never dropped; see `shared.rs`.
        static CURRENT: Mutex<Weak<Kubernetes>> = Mutex::const_new(Weak::new());
        let mut current = CURRENT.lock().await;
        if let Some(kubernetes) = current.upgrade() {
            return kubernetes;
        }
        let kubernetes = Arc::new(Self::start().await);
        *current = Arc::downgrade(&kubernetes);
        kubernetes
    }

    /// Returns a client with all permissions.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns the API for objects of a namespace, with the administrator's permissions.
    pub fn objects<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client(), namespace)
    }

    /// Deletes a pod without a grace period.
    ///
    /// # Panics
    /// If there is no such pod.
    pub async fn delete_pod(&self, namespace: &str, name: &str) {
        let pods: Api<Pod> = self.objects(namespace);
        let at_once = DeleteParams::default().grace_period(0);
        let deleted = pods.delete(name, &at_once).await;
        deleted.unwrap_or_else(|error| panic!("pod {name}: {error}"));
    }

    /// Returns a client with the credentials of a pod's processes.
    pub fn client_as(&self, credentials: &Credentials) -> Client {
        self.control_plane.client(&credentials.token_file())
    }

    /// Returns the environment variables with the API server's address, for a process in a pod.
    pub fn environment(&self) -> [(String, String); 2] {
        environment(self.control_plane.address(), self.port())
    }

    /// Starts a new proxy in front of the API server; see
    /// [`environment_through`](Self::environment_through).
    pub fn proxy(&self) -> Proxy {
        Proxy::start(&[self.port()], true)
    }

    /// Like [`environment`](Self::environment), but with `proxy` in between.
    pub fn environment_through(&self, proxy: &Proxy) -> [(String, String); 2] {
        environment(Ipv4Addr::LOCALHOST, proxy.port(0))
    }

    /// Sends a signal to the API server, such as SIGSTOP.
    pub fn signal_api_server(&self, signal: Signal) {
        self.control_plane.signal_api_server(signal);
    }

    /// Returns the API server's port.
    pub fn port(&self) -> u16 {
        self.control_plane.port()
    }

    /// Returns the file of the certificate authority that signed the API server's certificate.
    pub fn authority(&self) -> PathBuf {
        self.control_plane.authority()
    }

    /// Returns the process ids of the three programs.
    pub fn pids(&self) -> Vec<u32> {
        self.control_plane.pids()
    }

    /// Returns the directory of data and logs.
    pub fn directory(&self) -> &Path {
        self.control_plane.directory()
    }

    /// Returns the last lines of the three programs' logs.
    pub fn logs(&self) -> String {
        self.control_plane.logs()
    }

    /// Creates a namespace with a unique name and waits for its service account `default`, which
    /// pods require.
    ///
    /// # Panics
    /// If the controller does not create the account.
    pub async fn namespace(&self) -> String {
        let number = self.namespaces.fetch_add(1, Ordering::Relaxed) + 1;
        let name = format!("test-{number}");
        let namespace = Namespace {
            metadata: named(&name),
            ..Namespace::default()
        };
        self.create(&Api::all(self.client()), &namespace).await;
        let accounts: Api<ServiceAccount> = self.objects(&name);
        let end = Instant::now() + CONTROLLER_DEADLINE;
        while accounts.get_opt("default").await.ok().flatten().is_none() {
            let logs = self.logs();
            assert!(Instant::now() < end, "no service account: {logs}");
            tokio::time::sleep(POLL).await;
        }
        name
    }

    /// Creates another node and returns its name. The controller manager deletes pods that are
    /// bound to a missing node.
    ///
    /// # Panics
    /// If the API server refuses the node.
    pub async fn node(&self) -> String {
        let number = self.nodes.fetch_add(1, Ordering::Relaxed) + 1;
        let name = format!("node-{number}");
        let node = Node {
            metadata: named(&name),
            ..Node::default()
        };
        self.create(&Api::all(self.client()), &node).await;
        name
    }

    /// Creates a pod on the first node, and reports it as running and ready with a unique address,
    /// as a kubelet does.
    ///
    /// # Panics
    /// If the API server refuses the pod.
    pub async fn pod(
        &self,
        namespace: &str,
        name: &str,
        labels: &[(&str, &str)],
        service_account: &str,
    ) -> Pod {
        self.pod_on(NODE, namespace, name, labels, service_account)
            .await
    }

    /// Like [`pod`](Self::pod), but on this [node](Self::node).
    ///
    /// # Panics
    /// Like [`pod`](Self::pod).
    pub async fn pod_on(
        &self,
        node: &str,
        namespace: &str,
        name: &str,
        labels: &[(&str, &str)],
        service_account: &str,
    ) -> Pod {
        let pods = self.objects(namespace);
        let pod = pod::on_node(node, name, labels, service_account);
        self.create(&pods, &pod).await;
        let number = self.pods.fetch_add(1, Ordering::Relaxed);
        self.report_running(namespace, &pod, &pod::address(number))
            .await
    }

    /// Reports, like a kubelet, that a pod is running and ready and has this address.
    ///
    /// # Panics
    /// If the API server refuses the report.
    pub async fn report_running(&self, namespace: &str, pod: &Pod, address: &str) -> Pod {
        let pods = self.objects(namespace);
        let reported = pod::report_running(&pods, pod, address).await;
        reported.unwrap_or_else(|error| panic!("report {:?}: {error}", pod.metadata.name))
    }

    /// Creates a [`pod`](Self::pod) of `app` that uses the namespace's default service account, and
    /// its [`credentials`](Self::credentials).
    ///
    /// # Panics
    /// Like [`pod`](Self::pod) and [`credentials`](Self::credentials).
    pub async fn place(&self, namespace: &str, name: &str, app: &str) -> Place {
        let labels = [("app", app)];
        let pod = self.pod(namespace, name, &labels, "default").await;
        self.place_of(pod).await
    }

    /// Like [`place`](Self::place), but for an existing pod.
    ///
    /// # Panics
    /// Like [`credentials`](Self::credentials).
    pub async fn place_of(&self, pod: Pod) -> Place {
        let credentials = self.credentials(&pod).await;
        Place { pod, credentials }
    }

    /// Grants the pods of a namespace all permissions that a sidecar may need.
    ///
    /// # Panics
    /// If the API server rejects a manifest.
    pub async fn grant(&self, namespace: &str) {
        self.apply(namespace, place::RIGHTS).await;
    }

    /// Creates the Service `leader`, which routes to the pods of `app` whose `label` is `leader`.
    ///
    /// # Panics
    /// If the API server refuses the Service.
    pub async fn route_to_leader(&self, namespace: &str, app: &str, label: &str) {
        self.apply(namespace, &place::service(app, label)).await;
    }

    /// Creates the credentials that a pod reads from a projected volume.
    ///
    /// # Panics
    /// If the API server does not issue a token.
    pub async fn credentials(&self, pod: &Pod) -> Credentials {
        Credentials::new(self.client(), pod, &self.authority()).await
    }

    /// Applies all documents of `yaml` in order, as the administrator. Documents without a
    /// namespace go to `namespace`.
    ///
    /// # Panics
    /// If a document cannot be parsed, or the API server refuses one.
    pub async fn apply(&self, namespace: &str, yaml: &str) -> Vec<DynamicObject> {
        let applied = manifest::apply(&self.client, namespace, yaml, false).await;
        applied.unwrap_or_else(|error| panic!("apply: {error}"))
    }

    /// Like [`apply`](Self::apply), but stores nothing. Returns the objects that would be stored,
    /// after defaults and admission.
    ///
    /// # Errors
    /// If the API server refuses a document. The error is the API server's response.
    pub async fn dry_run(
        &self,
        namespace: &str,
        yaml: &str,
    ) -> Result<Vec<DynamicObject>, kube::Error> {
        manifest::apply(&self.client, namespace, yaml, true).await
    }

    async fn create<K>(&self, api: &Api<K>, object: &K)
    where
        K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
    {
        let created = api.create(&PostParams::default(), object).await;
        created.unwrap_or_else(|error| panic!("create {object:?}: {error}"));
    }
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    }
}

fn environment(address: Ipv4Addr, port: u16) -> [(String, String); 2] {
    [
        ("KUBERNETES_SERVICE_HOST".to_owned(), address.to_string()),
        ("KUBERNETES_SERVICE_PORT".to_owned(), port.to_string()),
    ]
}
