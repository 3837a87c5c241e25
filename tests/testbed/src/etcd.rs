//! A private etcd cluster for comparative measurements. Uses loopback ports, and ends with the
//! process that started it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::http;
use crate::{Launch, Process, ReservedPort, Scratch, Storage, kubernetes_programs};

/// Maximum time of a start. Three members elect within 2 s on idle cores.
const START_DEADLINE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

/// A running cluster.
#[derive(Debug)]
pub struct Etcd {
    // Fields are dropped in this order: the processes before the files they write to.
    members: Vec<Process>,
    ports: Vec<[ReservedPort; 2]>,
    scratch: Scratch,
}

impl Etcd {
    /// Starts a cluster of `count` members, with the data in this storage, and waits until all are
    /// healthy.
    ///
    /// # Panics
    /// If the cluster does not start, with the reason.
    pub async fn start(count: usize, storage: Storage) -> Self {
        let programs = kubernetes_programs().unwrap_or_else(|failure| panic!("{failure}"));
        let scratch = Scratch::on(storage).unwrap_or_else(|failure| panic!("{failure}"));
        let ports: Vec<_> = (0..count)
            .map(|_| [ReservedPort::new(), ReservedPort::new()])
            .collect();
        let member = |index| {
            let launch = Launch::new(programs.join("etcd"))
                .arguments(flags(scratch.path(), &ports, index))
                .stderr(log(scratch.path(), index));
            let started = launch.start();
            started.unwrap_or_else(|failure| panic!("{failure}"))
        };
        let etcd = Self {
            members: (0..count).map(member).collect(),
            ports,
            scratch,
        };
        etcd.healthy().await;
        etcd
    }

    /// Returns the addresses of all members in the format of `etcdctl --endpoints`.
    pub fn endpoints(&self) -> String {
        let urls: Vec<_> = self.ports.iter().map(|[client, _]| url(client)).collect();
        urls.join(",")
    }

    /// Returns the number of messages that the members have received from clients so far.
    ///
    /// # Panics
    /// If a member does not answer.
    pub async fn messages(&self) -> f64 {
        let mut sum = 0.0;
        for [client, _] in &self.ports {
            let answer = http::request(client.number(), "GET", "/metrics", &[]).await;
            let (_, text) = answer.unwrap_or_else(|failure| panic!("{failure}"));
            let received = |line: &&str| line.starts_with("grpc_server_msg_received_total{");
            let counts = text.lines().filter(received);
            sum += counts
                .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
                .sum::<f64>();
        }
        sum
    }

    async fn healthy(&self) {
        let end = Instant::now() + START_DEADLINE;
        for (index, [client, _]) in self.ports.iter().enumerate() {
            loop {
                let answer = http::request(client.number(), "GET", "/health", &[]).await;
                if matches!(answer, Ok((200, _))) {
                    break;
                }
                let ended = self.members[index].exit_status().is_some();
                if ended || Instant::now() > end {
                    let log = std::fs::read_to_string(log(self.scratch.path(), index));
                    panic!("etcd does not start:\n{}", log.unwrap_or_default());
                }
                tokio::time::sleep(POLL).await;
            }
        }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // Kill all members before waiting for the first, so that they exit concurrently.
        for member in &self.members {
            member.signal(Signal::KILL);
        }
    }
}

fn flags(directory: &Path, ports: &[[ReservedPort; 2]], index: usize) -> Vec<String> {
    let [client, peer] = &ports[index];
    let (client, peer) = (url(client), url(peer));
    let all = ports.iter().enumerate();
    let all = all.map(|(index, [_, peer])| format!("member-{index}={}", url(peer)));
    let data = directory.join(format!("member-{index}"));
    vec![
        format!("--name=member-{index}"),
        format!("--data-dir={}", data.display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster={}", all.collect::<Vec<_>>().join(",")),
        "--log-level=warn".to_owned(),
    ]
}

fn log(directory: &Path, index: usize) -> PathBuf {
    directory.join(format!("member-{index}.log"))
}

fn url(port: &ReservedPort) -> String {
    format!("http://127.0.0.1:{}", port.number())
}
