//! Processes that run throughout, and their resource usage over time: a leader and its guard, a
//! follower, `leasehold web` with visitors, and a program that repeatedly acquires a lock.
//!
//! No fault kills these processes. Their lease has the default timings, so it outlasts most faults
//! of the replica set.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use leasehold_testbed::network::Node;
use leasehold_testbed::{Daemon, DaemonTimings, Failure, Launch, Process, ReservedPort, pid};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::growth::Growth;
use crate::world::Places;

/// Name of the lease, the lock and their collection.
const NAME: &str = "residents";
const SAMPLE_EVERY: Duration = Duration::from_secs(5);
const VISIT_EVERY: Duration = Duration::from_secs(1);
const FOLLOWED: Duration = Duration::from_secs(20);
/// Timeout of an HTTP request. The timeout is generous, because the server may be waiting for
/// MongoDB.
const ANSWER_MAX: Duration = Duration::from_secs(10);
const PATHS: [&str; 3] = ["/", "/document?name=orders", "/livez"];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// Resident memory in bytes.
    Rss,
    /// The anonymous part of resident memory.
    Anonymous,
    Descriptors,
    /// Socket descriptors: connections and listeners.
    Sockets,
    Threads,
}

impl Need {
    fn name(self) -> &'static str {
        match self {
            Self::Rss => "RSS",
            Self::Anonymous => "anonymous memory",
            Self::Descriptors => "descriptors",
            Self::Sockets => "sockets",
            Self::Threads => "threads",
        }
    }

    fn is_memory(self) -> bool {
        matches!(self, Self::Rss | Self::Anonymous)
    }
}

/// The role of a process, its process id, and the measured resource.
type Key = (&'static str, u32, Need);

pub(crate) struct Residents {
    daemons: [Daemon; 2],
    web: (Process, ReservedPort),
    library: Process,
    begun: Instant,
    samples: Mutex<BTreeMap<Key, Vec<(Duration, f64)>>>,
}

#[derive(Debug, Clone)]
pub(crate) struct Finding {
    process: &'static str,
    need: Need,
    growth: Growth,
}

impl Residents {
    /// Starts the processes on the host with this number, and the web server on this process's own
    /// host.
    pub(crate) fn start(host: usize, places: &Places) -> Result<Self, Failure> {
        let inside = Node::Client(host).namespace();
        let daemon = |identity: &str| {
            Daemon::builder(&places.program)
                .lease(NAME)
                .identity(identity)
                .uri(&places.uri)
                .timings(DaemonTimings::DEFAULT)
                .flags(["--mongodb-collection", NAME])
                .flag("--workload-on-exit=release")
                .workload(["sleep", "infinity"])
                .untraced()
                .inside(&inside)
                .try_start()
        };
        let port = ReservedPort::new();
        let web = Launch::new(&places.program)
            .argument("web")
            .argument(format!("--listen=127.0.0.1:{}", port.number()))
            .arguments(["--mongodb-uri-file".as_ref(), places.uri_file.as_os_str()])
            .stderr(places.directory.join("log-web"));
        let library = Launch::new(&places.harness)
            .arguments(["resident", "--name", NAME])
            .arguments(["--uri-file".as_ref(), places.uri_file.as_os_str()])
            .stderr(places.directory.join("log-library"))
            .inside(&inside);
        Ok(Self {
            daemons: [daemon("resident-a")?, daemon("resident-b")?],
            web: (web.start()?, port),
            library: library.start()?,
            begun: Instant::now(),
            samples: Mutex::default(),
        })
    }

    /// Samples the processes and visits the page until this future is dropped. Returns an error if
    /// a process has ended.
    pub(crate) async fn run(&self) -> Result<(), Failure> {
        tokio::select! {
            failed = self.sample() => failed,
            () = self.visit() => Ok(()),
            () = self.follow() => Ok(()),
        }
    }

    async fn sample(&self) -> Result<(), Failure> {
        loop {
            tokio::time::sleep(SAMPLE_EVERY).await;
            let at = self.begun.elapsed();
            for (process, id) in self.processes() {
                let needs = needs(id)
                    .ok_or_else(|| Failure::new(format!("the resident {process} has ended")));
                // A guard exits when the leadership ends.
                if process == "guard" && needs.is_err() {
                    continue;
                }
                let mut samples = self.samples.lock().expect("no holder panics");
                for (need, value) in needs? {
                    let series = samples.entry((process, id, need)).or_default();
                    series.push((at, value));
                }
            }
        }
    }

    fn processes(&self) -> Vec<(&'static str, u32)> {
        let mut processes = vec![("web", self.web.0.pid()), ("library", self.library.pid())];
        for daemon in &self.daemons {
            if daemon.leads() {
                let guard = pid::children(daemon.pid()).into_iter().next();
                processes.extend(guard.map(|guard| ("guard", guard)));
                processes.push(("leader", daemon.pid()));
            } else {
                processes.push(("follower", daemon.pid()));
            }
        }
        processes
    }

    async fn visit(&self) {
        for path in PATHS.iter().cycle() {
            // The server may be waiting for MongoDB during a fault.
            let _ = timeout(ANSWER_MAX, self.get(path, None)).await;
            tokio::time::sleep(VISIT_EVERY).await;
        }
    }

    async fn follow(&self) {
        loop {
            let _ = self.get("/events", Some(FOLLOWED)).await;
            tokio::time::sleep(VISIT_EVERY).await;
        }
    }

    /// Reads a response until end of file or for at most `time`.
    async fn get(&self, path: &str, time: Option<Duration>) -> std::io::Result<()> {
        let port = self.web.1.number();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n");
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        match time {
            Some(time) => {
                let _ = timeout(time, read).await;
            }
            None => drop(read.await?),
        }
        Ok(())
    }

    /// Returns the growth of each resource for processes that kept their role most of the time, and
    /// a violation for each role that no process kept.
    pub(crate) fn findings(&self) -> (Vec<Finding>, Vec<String>) {
        let samples = self.samples.lock().expect("no holder panics");
        let mut findings = Vec::new();
        for ((process, _, need), series) in samples.iter() {
            let lived = series.last().map(|last| last.0 - series[0].0);
            if lived.is_none_or(|lived| lived < self.begun.elapsed() / 2) {
                continue;
            }
            let growth = Growth::of(series);
            findings.extend(growth.map(|growth| Finding {
                process,
                need: *need,
                growth,
            }));
        }
        let parts = ["leader", "guard", "follower", "web", "library"];
        let missing = parts
            .into_iter()
            .filter(|part| !findings.iter().any(|finding| finding.process == *part));
        let missing =
            missing.map(|part| format!("residents: no {part} ran long enough to measure growth"));
        let missing = missing.collect();
        (findings, missing)
    }
}

impl Finding {
    pub(crate) fn violation(&self) -> Option<String> {
        let Self { process, need, .. } = self;
        self.growth
            .is_certain()
            .then(|| format!("residents: {need:?} of the {process} grows: {}", self.row()))
    }

    pub(crate) fn row(&self) -> String {
        let Growth { mean, slope, error } = self.growth;
        let (process, name) = (self.process, self.need.name());
        match self.need.is_memory() {
            true => {
                let [mean, slope, error] = [mean / 1e6, slope / 1e3, error / 1e3];
                format!("| {process} | {name} | {mean:.2} MB | {slope:+.0} ± {error:.0} kB |")
            }
            false => format!("| {process} | {name} | {mean:.1} | {slope:+.2} ± {error:.2} |"),
        }
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "process": self.process, "need": self.need.name(), "mean": self.growth.mean,
            "slope_per_hour": self.growth.slope, "error_95": self.growth.error,
        })
    }
}

/// Returns `None` if the process has ended.
fn needs(id: u32) -> Option<[(Need, f64); 5]> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let number = |name: &str| -> Option<f64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let mut descriptors = 0.0;
    let mut sockets = 0.0;
    for entry in std::fs::read_dir(format!("/proc/{id}/fd")).ok()?.flatten() {
        descriptors += 1.0;
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        if target.to_string_lossy().starts_with("socket:") {
            sockets += 1.0;
        }
    }
    Some([
        (Need::Rss, number("VmRSS:")? * 1024.0),
        (Need::Anonymous, number("RssAnon:")? * 1024.0),
        (Need::Descriptors, descriptors),
        (Need::Sockets, sockets),
        (Need::Threads, number("Threads:")?),
    ])
}
