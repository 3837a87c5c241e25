//! Starts etcd, kube-apiserver and kube-controller-manager with their flags.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kube::config::AuthInfo;
use kube::{Client, Config};
use rcgen::KeyPair;
use rustix::process::Signal;
use serde_json::json;
use tokio::net::TcpStream;

use crate::{Certificates, Failure, Host, Launch, Process, ReservedPort, Scratch, Storage};

/// Maximum startup time. Startup takes 2 s on two idle cores, and more on a busy machine.
const START_DEADLINE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(10);
const LOG_END_BYTES: usize = 4_000;
/// The administrator's token, which is useless outside 127.0.0.1.
const TOKEN: &str = "testbed-administrator";
const ISSUER: &str = "https://kubernetes.default.svc";
/// The controllers that the tests' objects need. Each controller adds to the startup time.
const CONTROLLERS: [&str; 12] = [
    "clusterrole-aggregation-controller",
    "statefulset-controller",
    "job-controller",
    "deployment-controller",
    "endpoints-controller",
    "endpointslice-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "pod-garbage-collector-controller",
    "replicaset-controller",
    "serviceaccount-controller",
    "validatingadmissionpolicy-status-controller",
];

/// The host of a control plane, and its etcd.
#[derive(Debug)]
pub(super) enum Surroundings {
    /// On loopback, with its own etcd. The etcd flushes its data to this storage, if any.
    Own(Option<Storage>),
    /// On a host, with an etcd that is reachable at these endpoints.
    Host(Host, String),
}

#[derive(Debug)]
pub(super) struct ControlPlane {
    // Fields are dropped in order, so the processes end before their files are removed.
    processes: Vec<(&'static str, Process)>,
    port: ReservedPort,
    etcd_ports: [ReservedPort; 2],
    certificates: Certificates,
    surroundings: Surroundings,
    scratch: Scratch,
}

impl Surroundings {
    fn address(&self) -> Ipv4Addr {
        match self {
            Self::Own(_) => Ipv4Addr::LOCALHOST,
            Self::Host(host, _) => host.address,
        }
    }
}

impl ControlPlane {
    /// Starts the programs in a directory and waits until the API server is ready. Does not wait
    /// for the controllers.
    pub(super) async fn start(
        programs: &Path,
        surroundings: Surroundings,
    ) -> Result<Self, Failure> {
        let storage = match &surroundings {
            Surroundings::Own(storage) => storage.unwrap_or_default(),
            Surroundings::Host(..) => Storage::default(),
        };
        let mut control_plane = Self {
            processes: Vec::new(),
            port: ReservedPort::new(),
            etcd_ports: [ReservedPort::new(), ReservedPort::new()],
            certificates: Certificates::at(&[surroundings.address()]),
            surroundings,
            scratch: Scratch::on(storage)?,
        };
        control_plane.write_files();
        let end = Instant::now() + START_DEADLINE;
        if let Surroundings::Own(storage) = control_plane.surroundings {
            let flags = control_plane.etcd_flags(storage.is_some());
            control_plane.launch(programs, "etcd", flags)?;
            let port = control_plane.etcd_ports[0].number();
            control_plane
                .wait(end, async || {
                    TcpStream::connect(("127.0.0.1", port)).await.is_ok()
                })
                .await?;
        }
        let flags = control_plane.api_server_flags();
        control_plane.launch(programs, "kube-apiserver", flags)?;
        let client = control_plane.observer();
        control_plane
            .wait(end, async || {
                let request = http::Request::get("/readyz").body(Vec::new());
                let request = request.expect("a well-formed constant request");
                client.request_text(request).await.is_ok()
            })
            .await?;
        let flags = control_plane.controller_manager_flags();
        control_plane.launch(programs, "kube-controller-manager", flags)?;
        Ok(control_plane)
    }

    /// Returns a client that reads its token from a file, as in a pod.
    pub(super) fn client(&self, token: &Path) -> Client {
        Client::try_from(self.config(token)).expect("well-formed files")
    }

    pub(super) fn administrator(&self) -> Client {
        self.client(&self.file("token"))
    }

    pub(super) fn port(&self) -> u16 {
        self.port.number()
    }

    pub(super) fn address(&self) -> Ipv4Addr {
        self.surroundings.address()
    }

    pub(super) fn signal_api_server(&self, signal: Signal) {
        let mut servers = self.processes.iter();
        if let Some((_, server)) = servers.find(|(name, _)| *name == "kube-apiserver") {
            server.signal(signal);
        }
    }

    fn url(&self) -> String {
        format!("https://{}:{}", self.address(), self.port())
    }

    pub(super) fn authority(&self) -> PathBuf {
        self.certificates.authority()
    }

    pub(super) fn pids(&self) -> Vec<u32> {
        self.processes
            .iter()
            .map(|(_, process)| process.pid())
            .collect()
    }

    pub(super) fn directory(&self) -> &Path {
        self.scratch.path()
    }

    pub(super) fn logs(&self) -> String {
        let ends = ["etcd", "kube-apiserver", "kube-controller-manager"].map(|name| {
            let log = std::fs::read(self.file(name).with_extension("log")).unwrap_or_default();
            let begin = log.len().saturating_sub(LOG_END_BYTES);
            format!("{name}:\n{}\n", String::from_utf8_lossy(&log[begin..]))
        });
        ends.concat()
    }

    fn config(&self, token: &Path) -> Config {
        let mut config = Config::new(self.url().parse().expect("a port makes a URL"));
        config.root_cert_file = Some(self.authority());
        config.auth_info = AuthInfo {
            token_file: Some(token.display().to_string()),
            ..AuthInfo::default()
        };
        config
    }

    /// Returns a client without automatic delays and retries.
    fn observer(&self) -> Client {
        let mut config = self.config(&self.file("token"));
        config.default_retry = false;
        Client::try_from(config).expect("well-formed files")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn launch(
        &mut self,
        programs: &Path,
        name: &'static str,
        flags: Vec<String>,
    ) -> Result<(), Failure> {
        let mut launch = Launch::new(programs.join(name))
            .arguments(flags)
            .stderr(self.file(name).with_extension("log"));
        if let Surroundings::Host(host, _) = &self.surroundings {
            launch = launch.inside(&host.namespace);
        }
        self.processes.push((name, launch.start()?));
        Ok(())
    }

    async fn wait(&self, end: Instant, ready: impl AsyncFn() -> bool) -> Result<(), Failure> {
        while !ready().await {
            let ended = self
                .processes
                .iter()
                .any(|(_, process)| process.exit_status().is_some());
            if ended || Instant::now() > end {
                let logs = self.logs();
                return Err(Failure::new(format!("Kubernetes does not start:\n{logs}")));
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    fn write_files(&self) {
        let key = KeyPair::generate().expect("generate a key");
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "testbed",
            "clusters": [{ "name": "testbed", "cluster": {
                "server": self.url(),
                "certificate-authority": self.authority(),
            }}],
            "users": [{ "name": "testbed", "user": { "tokenFile": self.file("token") } }],
            "contexts": [{ "name": "testbed", "context": { "cluster": "testbed", "user": "testbed" } }],
        });
        for (name, text) in [
            ("accounts.key", key.serialize_pem()),
            ("accounts.pub", key.public_key_pem()),
            ("token", TOKEN.to_owned()),
            (
                "tokens.csv",
                format!("{TOKEN},administrator,administrator,\"system:masters\"\n"),
            ),
            ("kubeconfig", kubeconfig.to_string()),
        ] {
            std::fs::write(self.file(name), text).expect("write a file in the scratch directory");
        }
    }

    fn etcd_flags(&self, durable: bool) -> Vec<String> {
        let [client, peer] = &self.etcd_ports;
        let client = format!("http://127.0.0.1:{}", client.number());
        let peer = format!("http://127.0.0.1:{}", peer.number());
        let mut flags = vec![
            format!("--data-dir={}", self.file("etcd").display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
            "--log-level=warn".to_owned(),
        ];
        if !durable {
            // The data need not survive a crash of the machine.
            flags.push("--unsafe-no-fsync".to_owned());
        }
        flags
    }

    fn api_server_flags(&self) -> Vec<String> {
        let certificate = self.certificates.server();
        let etcd = match &self.surroundings {
            Surroundings::Own(_) => format!("http://127.0.0.1:{}", self.etcd_ports[0].number()),
            Surroundings::Host(_, endpoints) => endpoints.clone(),
        };
        let flags = [
            ("etcd-servers", etcd),
            ("etcd-compaction-interval", "0".to_owned()),
            ("bind-address", self.address().to_string()),
            ("secure-port", self.port().to_string()),
            // Without this flag, the API server searches for a default route, which a sandbox does
            // not have.
            ("advertise-address", "192.0.2.1".to_owned()),
            ("endpoint-reconciler-type", "none".to_owned()),
            ("cert-dir", self.file("certificates").display().to_string()),
            ("tls-cert-file", certificate.display().to_string()),
            ("tls-private-key-file", certificate.display().to_string()),
            ("service-cluster-ip-range", "10.96.0.0/16".to_owned()),
            ("authorization-mode", "RBAC".to_owned()),
            (
                "token-auth-file",
                self.file("tokens.csv").display().to_string(),
            ),
            ("service-account-issuer", ISSUER.to_owned()),
            (
                "service-account-key-file",
                self.file("accounts.pub").display().to_string(),
            ),
            (
                "service-account-signing-key-file",
                self.file("accounts.key").display().to_string(),
            ),
        ];
        flags
            .into_iter()
            .map(|(name, value)| format!("--{name}={value}"))
            .collect()
    }

    fn controller_manager_flags(&self) -> Vec<String> {
        vec![
            format!("--kubeconfig={}", self.file("kubeconfig").display()),
            format!("--controllers={}", CONTROLLERS.join(",")),
            "--leader-elect=false".to_owned(),
            // Disable the port, which no test uses.
            "--secure-port=0".to_owned(),
            // By default the controller manager limits itself to 20 requests per second.
            "--kube-api-qps=200".to_owned(),
            "--kube-api-burst=400".to_owned(),
        ]
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        // Kill all processes before waiting for the first, so that they exit concurrently.
        for (_, process) in &self.processes {
            process.signal(Signal::KILL);
        }
    }
}
