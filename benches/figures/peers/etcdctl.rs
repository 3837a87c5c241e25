//! Measures etcdctl's election and lock on a cluster of three members.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_testbed::daemon::boottime_ns;
use leasehold_testbed::{Etcd, Scratch, etcdctl_binary, kubernetes_programs};
use tokio::process::Command;
use tokio::sync::mpsc::UnboundedReceiver;

use super::elections::{HANDOFF, TAKEOVER};
use super::{ELECT, LOCK};
use crate::launch::{Executed, Line, Setup, nanos, seconds};
use crate::locks;
use crate::report::{Row, Unit};

const ELECTED_MAX: Duration = Duration::from_secs(120);
const SETTLE: Duration = Duration::from_millis(250);
/// TTL of an election's session. etcdctl has no option for this TTL.
const ELECT_LIFE: Duration = Duration::from_secs(60);
/// TTL of a lock's session in the comparison of takeovers, equal to the other systems' lease
/// duration.
const LOCK_LIFE: Duration = Duration::from_secs(15);
/// Duration of a holder's command. The benchmark kills the command earlier.
const HOLD: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(10);

pub(crate) struct Etcdctl {
    pub(crate) etcd: Etcd,
    pub(crate) program: PathBuf,
}

pub(crate) struct Candidate {
    process: Executed,
    printed: UnboundedReceiver<(u64, String)>,
    proposal: String,
}

impl Etcdctl {
    /// Starts a cluster. On failure, returns which program is not available and why.
    pub(crate) async fn start(setup: &Setup) -> Result<Self, String> {
        // The report contains only this part of the output, because the rest may name module
        // servers.
        let own = |failure: leasehold_testbed::Failure| {
            let text = failure.to_string();
            let mut lines = text.lines().filter(|line| line.starts_with("fetch-"));
            lines.next_back().unwrap_or("not available").to_owned()
        };
        let program = etcdctl_binary().map_err(own)?;
        kubernetes_programs().map_err(|_| "no etcd: see the output of fetch-kubernetes")?;
        let etcd = Etcd::start(3, setup.storage).await;
        Ok(Self { etcd, program })
    }

    pub(crate) fn lock(&self, lock: &str, life: Duration, command: Vec<String>) -> Line {
        let life = format!("--ttl={}", life.as_secs());
        let begin = ["lock", &life, lock, "--"].map(str::to_owned);
        self.line(begin.into_iter().chain(command))
    }

    fn line(&self, arguments: impl IntoIterator<Item = String>) -> Line {
        let endpoints = format!("--endpoints={}", self.etcd.endpoints());
        let arguments = [endpoints].into_iter().chain(arguments);
        Line {
            program: self.program.clone(),
            arguments: arguments.map(OsString::from).collect(),
            environment: Vec::new(),
        }
    }

    pub(crate) fn candidate(&self, election: &str, proposal: &str) -> Candidate {
        let arguments = ["elect", election, proposal].map(str::to_owned);
        let (process, printed) = Executed::printing(&self.line(arguments));
        Candidate {
            process,
            printed,
            proposal: proposal.to_owned(),
        }
    }

    async fn joined(&self, election: &str, count: usize) {
        let end = boottime_ns() + nanos(ELECTED_MAX);
        let arguments = ["get", election, "--prefix", "--keys-only"].map(str::to_owned);
        let Line {
            program, arguments, ..
        } = self.line(arguments);
        loop {
            let output = Command::new(&program).args(&arguments).output().await;
            let text = output.expect("start etcdctl").stdout;
            let text = String::from_utf8_lossy(&text).into_owned();
            if text.lines().filter(|line| !line.is_empty()).count() == count {
                return;
            }
            assert!(boottime_ns() < end, "{count} candidates, not {text}");
            tokio::time::sleep(POLL).await;
        }
    }

    async fn three(&self, election: &str) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        for index in 0..3 {
            candidates.push(self.candidate(election, &format!("c{index}")));
            self.joined(election, index + 1).await;
        }
        candidates[0].elected().await;
        candidates
    }
}

impl Candidate {
    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Returns the time at which etcd elected this candidate.
    async fn elected(&mut self) -> u64 {
        let printed = tokio::time::timeout(ELECTED_MAX, async {
            loop {
                let (at_ns, line) = self.printed.recv().await.expect("another line");
                if line == self.proposal {
                    return at_ns;
                }
            }
        });
        printed.await.expect("the candidate is elected")
    }
}

pub(crate) async fn handoffs(setup: &Setup, figure: &'static str) -> Result<Vec<Row>, String> {
    let etcdctl = Etcdctl::start(setup).await?;
    let mut candidates = etcdctl.three("handoff").await;
    let mut series = Vec::new();
    for round in 0..setup.count(100, 20) {
        tokio::time::sleep(SETTLE).await;
        // etcd elects candidates in the order in which they joined.
        let mut old = candidates.remove(0);
        let sent_ns = boottime_ns();
        old.process.term();
        series.push(seconds(sent_ns, candidates[0].elected().await));
        old.process.ended().await;
        candidates.push(etcdctl.candidate("handoff", &format!("c{}", round + 3)));
        etcdctl.joined("handoff", 3).await;
    }
    Ok(vec![
        Row::new(figure, HANDOFF, Unit::Time, &series, &[]).of(ELECT),
    ])
}

/// Starts three candidates. Returns the candidates and their process ids, with the leader first.
pub(crate) async fn resting(etcdctl: &Etcdctl) -> (Vec<Candidate>, Vec<u32>) {
    let candidates = etcdctl.three("rest").await;
    let pids = candidates.iter().map(Candidate::pid).collect();
    (candidates, pids)
}

/// Kills the holder right after its acquisition, so that the acquisition is also the last renewal.
/// Measures how long another candidate takes to acquire the election or the lock.
pub(crate) async fn takeovers(setup: &Setup, figure: &'static str) -> Result<Vec<Row>, String> {
    let etcdctl = Etcdctl::start(setup).await?;
    let count = setup.count(10, 4);
    let elections = join_all((0..count).map(async |index| {
        let election = format!("takeover-{index}");
        let mut holder = etcdctl.candidate(&election, "a");
        let renewed_ns = holder.elected().await;
        holder.process.kill();
        let mut other = etcdctl.candidate(&election, "b");
        let took = seconds(renewed_ns, other.elected().await);
        took - ELECT_LIFE.as_secs_f64()
    }));
    let scratch = Scratch::new();
    let held = join_all((0..count).map(async |index| {
        // A lock with an election's name would join the election's queue.
        let lock = format!("held-{index}");
        let journal = scratch.path().join(&lock);
        let line = etcdctl.lock(&lock, LOCK_LIFE, locks::act(&journal, HOLD));
        let mut holder = Executed::non_blocking(&line);
        locks::begun(&journal, 1).await;
        let renewed_ns = boottime_ns();
        holder.kill();
        let mut other = Executed::non_blocking(&line);
        other.ended().await;
        let acts = locks::acts(&journal);
        seconds(renewed_ns, acts[1].0) - LOCK_LIFE.as_secs_f64()
    }));
    let (elections, held) = tokio::join!(elections, held);
    let row =
        |system, series: &[f64]| Row::new(figure, TAKEOVER, Unit::Time, series, &[]).of(system);
    Ok(vec![row(ELECT, &elections), row(LOCK, &held)])
}
