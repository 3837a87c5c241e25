//! Measures an elector that uses client-go's leader election (`benches/peers/client-go`), on a real
//! API server.

use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::join_all;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;
use leasehold_testbed::daemon::boottime_ns;
use leasehold_testbed::{Kubernetes, Launch, Process, Scratch};
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use tokio::process::Command;

use super::CLIENT_GO;
use super::elections::{HANDOFF, TAKEOVER};
use crate::launch::{Setup, directories, nanos, seconds};
use crate::observer::Observer;
use crate::report::{Row, Unit};

const FETCH: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/testbed/fetch-go-program"
);
const LEADS_MAX: Duration = Duration::from_secs(90);
const EXIT_MAX: Duration = Duration::from_secs(30);
const STATUS_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);
/// Number of unanswered polls after which the elector is signaled again.
const ASK_AGAIN: u64 = 50;
const SETTLE: Duration = Duration::from_millis(250);
/// Each pause is this much longer than the previous pause, modulo the retry period, so that
/// handoffs and crashes are independent of the followers' polls.
const PHASE: Duration = Duration::from_millis(311);
const RETRY: Duration = Duration::from_secs(2);
const LEASE: Duration = Duration::from_secs(15);

pub(crate) struct Electors {
    kubernetes: Kubernetes,
    namespace: String,
    program: PathBuf,
    directories: Vec<PathBuf>,
    scratch: Scratch,
}

/// Builds the program unless the cache contains it. Returns the program's path, or the reason for
/// the failure.
pub(crate) async fn program() -> Result<PathBuf, String> {
    let output = Command::new(FETCH)
        .arg("elector")
        .kill_on_drop(true)
        .output()
        .await
        .map_err(|error| format!("cannot start fetch-go-program: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    match output.status.success() {
        true => Ok(PathBuf::from(text.trim())),
        // The report omits the output, which may name module servers.
        false => Err("fetch-go-program elector failed".to_owned()),
    }
}

impl Electors {
    /// Starts a control plane for this many electors. On failure, returns why the program or the
    /// control plane is not available.
    pub(crate) async fn new(setup: &Setup, count: usize) -> Result<Self, String> {
        let program = program().await?;
        leasehold_testbed::kubernetes_programs()
            .map_err(|_| "no Kubernetes: see the output of fetch-kubernetes")?;
        let kubernetes = Kubernetes::start_durable(setup.storage).await;
        let namespace = kubernetes.namespace().await;
        let scratch = Scratch::new();
        let directories = directories(scratch.path(), count);
        Ok(Self {
            kubernetes,
            namespace,
            program,
            directories,
            scratch,
        })
    }

    async fn start(&self, lease: &str, index: usize) -> Process {
        let kubeconfig = self.kubernetes.directory().join("kubeconfig");
        let directory = &self.directories[index];
        let _ = std::fs::remove_file(directory.join("status.json"));
        let flag = |name: &str, value: &str| format!("-{name}={value}");
        let process = Launch::new(&self.program)
            .argument(flag("kubeconfig", &kubeconfig.display().to_string()))
            .argument(flag("namespace", &self.namespace))
            .argument(flag("lease", lease))
            .argument(flag("identity", &format!("e{index}")))
            .argument(flag("directory", &directory.display().to_string()))
            .stderr(self.scratch.path().join(format!("log-{index}")))
            .start();
        let process = process.unwrap_or_else(|failure| panic!("{failure}"));
        // The program registers its signal handler some time after its start. An earlier SIGUSR1
        // would kill the program.
        let handles = || handles_usr1(process.pid());
        let end = boottime_ns() + nanos(STATUS_MAX);
        while !handles() {
            assert!(boottime_ns() < end, "{}", self.log(index));
            tokio::time::sleep(POLL).await;
        }
        while self.requests(&process, index).await < 1.0 {
            tokio::time::sleep(POLL).await;
        }
        process
    }

    /// Returns the number of requests that an elector has sent so far.
    pub(crate) async fn requests(&self, process: &Process, index: usize) -> f64 {
        let answers = |status: &Value| status["answers"].as_u64().unwrap_or(0);
        let before = answers(&self.status(index));
        let end = boottime_ns() + nanos(STATUS_MAX);
        for round in 0_u64.. {
            // A process that has just started may miss the signal.
            if round % ASK_AGAIN == 0 {
                process.signal(Signal::USR1);
            }
            tokio::time::sleep(POLL).await;
            let status = self.status(index);
            if answers(&status) > before {
                return status["requests"].as_f64().expect("a number");
            }
            assert!(boottime_ns() < end, "{}", self.log(index));
        }
        unreachable!("the loop does not end")
    }

    /// Returns the content of an elector's file, or null if the file does not exist yet.
    fn status(&self, index: usize) -> Value {
        let path = self.directories[index].join("status.json");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    fn log(&self, index: usize) -> String {
        let log = self.scratch.path().join(format!("log-{index}"));
        let log = std::fs::read_to_string(log).unwrap_or_default();
        format!("elector {index} does not answer; its log:\n{log}")
    }

    /// Starts three electors of one lease, and returns the leader first.
    pub(crate) async fn three(&self, lease: &str) -> Vec<Process> {
        let mut observer = Observer::start(&self.directories);
        let mut electors = vec![self.start(lease, 0).await];
        leads(&mut observer, |index| index == 0).await;
        for index in 1..3 {
            electors.push(self.start(lease, index).await);
        }
        electors
    }

    /// Returns the time on CLOCK_BOOTTIME at which a lease's holder sent its last successful
    /// renewal. The API server runs on this machine, so both use one clock.
    async fn renewed(&self, lease: &str) -> u64 {
        let leases: Api<Lease> = self.kubernetes.objects(&self.namespace);
        let lease = leases.get(lease).await.expect("the API server answers");
        let renewed = lease.spec.and_then(|spec| spec.renew_time);
        let renewed_ns = renewed.expect("a held lease").0.as_nanosecond();
        let now = clock_gettime(ClockId::Realtime);
        let now_ns = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
        let at_ns = i128::from(boottime_ns()) - (now_ns - renewed_ns);
        u64::try_from(at_ns).expect("renewed after boot")
    }
}

fn handles_usr1(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let bit = Signal::USR1.as_raw() - 1;
    caught.is_some_and(|mask| mask & (1 << bit) != 0)
}

/// Waits until an elector reports that it leads. Returns the elector's index and the time.
async fn leads(observer: &mut Observer, mut of: impl FnMut(usize) -> bool) -> (usize, u64) {
    let found = |seen: &crate::observer::Seen| of(seen.index) && seen.leads_until_ns().is_some();
    let seen = observer.find("an elector leads", LEADS_MAX, found).await;
    (seen.index, seen.at_ns)
}

/// Returns the pause before the next event. The pause differs in each round.
fn pause(round: usize) -> Duration {
    let round = u32::try_from(round).expect("few rounds");
    let extra = u64::try_from((PHASE * round).as_millis()).expect("a short time");
    let period = u64::try_from(RETRY.as_millis()).expect("a short time");
    SETTLE + Duration::from_millis(extra % period)
}

pub(crate) async fn handoffs(setup: &Setup, figure: &'static str) -> Result<Vec<Row>, String> {
    let electors = Electors::new(setup, 3).await?;
    let mut processes = electors.three("handoff").await;
    let mut observer = Observer::start(&electors.directories);
    let (mut old, mut series) = (0, Vec::new());
    for round in 0..setup.count(40, 8) {
        tokio::time::sleep(pause(round)).await;
        observer.forget();
        let sent_ns = boottime_ns();
        processes[old].signal(Signal::TERM);
        let (new, led_ns) = leads(&mut observer, |index| index != old).await;
        series.push(seconds(sent_ns, led_ns));
        let ended = processes[old].wait(EXIT_MAX).await;
        ended.expect("exits after SIGTERM");
        processes[old] = electors.start("handoff", old).await;
        old = new;
    }
    Ok(vec![
        Row::new(figure, HANDOFF, Unit::Time, &series, &[]).of(CLIENT_GO),
    ])
}

/// Kills the leaders of several leases with SIGKILL, and measures the time until other electors
/// lead. Two electors contend for each lease.
pub(crate) async fn takeovers(setup: &Setup, figure: &'static str) -> Result<Vec<Row>, String> {
    let count = setup.count(15, 4);
    let electors = Electors::new(setup, 2 * count).await?;
    let mut observer = Observer::start(&electors.directories);
    let lease = |index: usize| format!("takeover-{index}");
    let mut pairs = Vec::new();
    for index in 0..count {
        let holder = electors.start(&lease(index), 2 * index).await;
        leads(&mut observer, |seen| seen == 2 * index).await;
        pairs.push((holder, electors.start(&lease(index), 2 * index + 1).await));
    }
    observer.forget();
    let renewed = join_all(pairs.iter().enumerate().map(async |(index, (holder, _))| {
        tokio::time::sleep(pause(index)).await;
        holder.kill();
        electors.renewed(&lease(index)).await
    }))
    .await;
    let mut led = vec![None; count];
    while led.contains(&None) {
        let (index, at_ns) = leads(&mut observer, |index| index % 2 == 1).await;
        led[index / 2].get_or_insert(at_ns);
    }
    let led = led.into_iter().flatten();
    let beyond = renewed
        .into_iter()
        .zip(led)
        .map(|(renewed, led)| seconds(renewed, led) - LEASE.as_secs_f64());
    let series: Vec<_> = beyond.collect();
    Ok(vec![
        Row::new(figure, TAKEOVER, Unit::Time, &series, &[]).of(CLIENT_GO),
    ])
}
