//! Runs a private etcd cluster for comparisons, on loopback ports or on separate hosts. The cluster
//! ends with the process that started it.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::http;
use crate::{Failure, Host, Launch, Process, ReservedPort, Scratch, Storage, kubernetes_programs};

/// Maximum startup time. Three members elect a leader within 2 s on idle cores.
const START_DEADLINE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

/// A running etcd cluster.
#[derive(Debug)]
pub struct Etcd {
    // Fields are dropped in order, so the processes end before their files are removed.
    members: Vec<Member>,
    scratch: Scratch,
}

#[derive(Debug)]
struct Member {
    launch: Launch,
    process: Mutex<Process>,
    place: Place,
}

/// A member's address and its two ports: one for clients, one for other members.
#[derive(Debug)]
struct Place {
    address: Ipv4Addr,
    ports: [ReservedPort; 2],
}

impl Place {
    fn client(&self) -> String {
        self.url(0)
    }

    fn peer(&self) -> String {
        self.url(1)
    }

    fn url(&self, index: usize) -> String {
        format!("http://{}:{}", self.address, self.ports[index].number())
    }
}

impl Etcd {
    /// Starts a cluster of `count` members, with the data in this storage, and waits until all are
    /// healthy.
    ///
    /// # Panics
    /// If the cluster does not start.
    pub async fn start(count: usize, storage: Storage) -> Self {
        let here = vec![None; count];
        let started = Self::on(&here, storage).await;
        started.unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// Like [`start`](Self::start), but runs each member on its own host, and returns errors.
    ///
    /// # Errors
    /// If the cluster does not start.
    pub async fn start_on(hosts: &[Host], storage: Storage) -> Result<Self, Failure> {
        let hosts: Vec<_> = hosts.iter().map(Some).collect();
        Self::on(&hosts, storage).await
    }

    async fn on(hosts: &[Option<&Host>], storage: Storage) -> Result<Self, Failure> {
        let programs = kubernetes_programs()?;
        let scratch = Scratch::on(storage)?;
        let places: Vec<_> = hosts
            .iter()
            .map(|host| Place {
                address: host.map_or(Ipv4Addr::LOCALHOST, |host| host.address),
                ports: [ReservedPort::new(), ReservedPort::new()],
            })
            .collect();
        let launches = hosts.iter().enumerate().map(|(index, host)| {
            let launch = Launch::new(programs.join("etcd"))
                .arguments(flags(scratch.path(), &places, index))
                .stderr(log(scratch.path(), index));
            match host {
                Some(host) => launch.inside(&host.namespace),
                None => launch,
            }
        });
        let launches: Vec<_> = launches.collect();
        let members = launches.into_iter().zip(places).map(|(launch, place)| {
            let process = Mutex::new(launch.start()?);
            Ok(Member {
                launch,
                process,
                place,
            })
        });
        let etcd = Self {
            members: members.collect::<Result<_, Failure>>()?,
            scratch,
        };
        etcd.healthy().await?;
        Ok(etcd)
    }

    /// Returns the addresses of all members in the format of `etcdctl --endpoints`.
    pub fn endpoints(&self) -> String {
        let urls = self.members.iter().map(|member| member.place.client());
        urls.collect::<Vec<_>>().join(",")
    }

    /// Kills a member (SIGKILL).
    pub fn kill(&self, member: usize) {
        self.process(member).kill();
    }

    /// Restarts a killed member.
    ///
    /// # Errors
    /// If the member cannot be started.
    pub fn restart(&self, member: usize) -> Result<(), Failure> {
        let started = self.members[member].launch.start()?;
        *self.process(member) = started;
        Ok(())
    }

    /// Sends a signal to a member.
    pub fn signal(&self, member: usize, signal: Signal) {
        self.process(member).signal(signal);
    }

    fn process(&self, member: usize) -> std::sync::MutexGuard<'_, Process> {
        let process = self.members[member].process.lock();
        process.unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of messages that clients have sent to the members.
    ///
    /// # Panics
    /// If a member does not answer.
    pub async fn messages(&self) -> f64 {
        let mut sum = 0.0;
        for member in &self.members {
            let answer = member.ask("/metrics").await;
            let (_, text) = answer.unwrap_or_else(|failure| panic!("{failure}"));
            let received = |line: &&str| line.starts_with("grpc_server_msg_received_total{");
            let counts = text.lines().filter(received);
            sum += counts
                .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
                .sum::<f64>();
        }
        sum
    }

    async fn healthy(&self) -> Result<(), Failure> {
        let end = Instant::now() + START_DEADLINE;
        for (index, member) in self.members.iter().enumerate() {
            while !matches!(member.ask("/health").await, Ok((200, _))) {
                let ended = self.process(index).exit_status().is_some();
                if ended || Instant::now() > end {
                    let log = std::fs::read_to_string(log(self.scratch.path(), index));
                    let log = log.unwrap_or_default();
                    return Err(Failure::new(format!("etcd does not start:\n{log}")));
                }
                tokio::time::sleep(POLL).await;
            }
        }
        Ok(())
    }
}

impl Member {
    async fn ask(&self, path: &str) -> Result<(u16, String), Failure> {
        let at = (self.place.address, self.place.ports[0].number());
        http::request(at.into(), "GET", path, &[]).await
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // Kill all members before waiting for the first, so that they exit concurrently.
        for member in 0..self.members.len() {
            self.signal(member, Signal::KILL);
        }
    }
}

fn flags(directory: &Path, places: &[Place], index: usize) -> Vec<String> {
    let (client, peer) = (places[index].client(), places[index].peer());
    let all = places.iter().enumerate();
    let all = all.map(|(index, place)| format!("member-{index}={}", place.peer()));
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
