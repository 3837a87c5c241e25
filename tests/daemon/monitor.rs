//! Continuously probes the status that a daemon reports in its file, over HTTP and in its metrics.
//!
//! A probe takes time. A probe's answer was true at some instant between the probe's start and its
//! end, on CLOCK_BOOTTIME. The tests count only overlaps that are certain.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_testbed::Daemon;
use leasehold_testbed::daemon::{boottime_ns, leads, sample};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::contest::eventually;

/// Pause between two probes. Shorter than a handoff (about 5 ms), but long enough that three tasks
/// for each daemon do not saturate the processor.
const PAUSE: Duration = Duration::from_millis(2);

#[derive(Debug, Clone)]
pub(crate) struct Observation {
    pub(crate) surface: &'static str,
    pub(crate) started_ns: u64,
    pub(crate) ended_ns: u64,
    pub(crate) leader: bool,
    pub(crate) token: Option<i64>,
}

pub(crate) struct Monitor {
    ends: watch::Sender<bool>,
    leaders: Arc<Mutex<BTreeSet<&'static str>>>,
    tasks: Vec<JoinHandle<Vec<Observation>>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Surface {
    File,
    Leader,
    Metric,
}

impl Monitor {
    /// Probes the status file (as a reader that checks its deadline), `/leader` and the metric.
    pub(crate) fn on(daemon: &Arc<Daemon>) -> Self {
        let (ends, end) = watch::channel(false);
        let surfaces = [Surface::File, Surface::Leader, Surface::Metric];
        let leaders = Arc::default();
        let tasks = surfaces.map(|surface| {
            let (daemon, end) = (Arc::clone(daemon), end.clone());
            tokio::spawn(look(daemon, surface, Arc::clone(&leaders), end))
        });
        Self {
            ends,
            leaders,
            tasks: tasks.into(),
        }
    }

    pub(crate) async fn sees_leader(&self) {
        eventually("every probe reports leader", async || {
            self.leaders.lock().unwrap().len() == self.tasks.len()
        })
        .await;
    }

    pub(crate) async fn end(self) -> Vec<Observation> {
        self.ends.send_replace(true);
        let mut observations = Vec::new();
        for task in self.tasks {
            observations.extend(task.await.unwrap());
        }
        observations
    }
}

/// Asserts that no probe reported `old` as leader after the first probe that reported `new` as
/// leader (I1, I4).
pub(crate) fn assert_one_after_the_other(old: &[Observation], new: &[Observation]) {
    let first = new.iter().filter(|observation| observation.leader);
    let first = first.min_by_key(|observation| observation.ended_ns);
    let first = first.expect("the new leader was seen");
    for surface in ["file", "/leader", "metric"] {
        let mut seen = old.iter().filter(|look| look.surface == surface);
        assert!(seen.any(|look| look.leader), "{surface}: old never led");
    }
    let both = old
        .iter()
        .find(|look| look.leader && look.started_ns > first.ended_ns);
    assert!(
        both.is_none(),
        "{both:?} although the other led at {first:?}"
    );
}

async fn look(
    daemon: Arc<Daemon>,
    surface: Surface,
    leaders: Arc<Mutex<BTreeSet<&'static str>>>,
    mut end: watch::Receiver<bool>,
) -> Vec<Observation> {
    let mut observations = Vec::new();
    while !*end.borrow_and_update() {
        let started_ns = boottime_ns();
        let seen = match surface {
            Surface::File => file(&daemon),
            Surface::Leader => http_leader(&daemon).await,
            Surface::Metric => metric(&daemon).await,
        };
        // A daemon that has exited does not answer, and therefore counts as "not leader".
        let (leader, token) = seen.unwrap_or((false, None));
        if leader {
            leaders.lock().unwrap().insert(surface.name());
        }
        observations.push(Observation {
            surface: surface.name(),
            started_ns,
            ended_ns: boottime_ns(),
            leader,
            token,
        });
        let _ = tokio::time::timeout(PAUSE, end.changed()).await;
    }
    observations
}

fn file(daemon: &Daemon) -> Option<(bool, Option<i64>)> {
    let status = daemon.try_status()?;
    Some((leads(&status), status["token"].as_i64()))
}

async fn http_leader(daemon: &Daemon) -> Option<(bool, Option<i64>)> {
    let (code, body) = daemon.http("/leader").await.ok()?;
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(code == 200, body["leader"] == true, "{code} {body}");
    Some((code == 200, body["token"].as_i64()))
}

async fn metric(daemon: &Daemon) -> Option<(bool, Option<i64>)> {
    let (_, page) = daemon.http("/metrics").await.ok()?;
    let leader = sample(&page, "leasehold_leader").unwrap();
    let alias = sample(&page, "leader_election_master_status").unwrap();
    assert!(leader == alias, "the alias has an equal value");
    Some((leader == 1.0, None))
}

impl Surface {
    fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Leader => "/leader",
            Self::Metric => "metric",
        }
    }
}
