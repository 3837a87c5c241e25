//! Starts a daemon that contends for the lease, and restarts the daemon after each exit, like a
//! service manager.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use leasehold_testbed::kubernetes::Place;
use leasehold_testbed::network::Node;
use leasehold_testbed::{
    Cgroup, Daemon, DaemonTimings, Failure, JumpingClock, Launch, Mount, Process, eventually, pid,
};
use rustix::process::Signal;

use crate::world::Places;

pub(crate) const SIDECAR: &str = "sidecar";
pub(crate) const LEASE: &str = "orders";
const RESTART: Duration = Duration::from_millis(500);

/// The workload's source of authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The daemon runs the workload.
    Supervised,
    /// The workload reads the status file.
    Sidecar,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Daemon,
    Guard,
    Work,
}

pub(crate) struct Candidate {
    pub(crate) identity: String,
    pub(crate) kind: Kind,
    /// A fault can make this daemon's wall clock jump; other processes are unaffected.
    pub(crate) clock: Option<JumpingClock>,
    pub(crate) disk: Mount,
    number: usize,
    places: Places,
    timings: DaemonTimings,
    pod: Option<Place>,
    state: Mutex<State>,
    _reader: Option<Process>,
}

#[derive(Default)]
struct State {
    daemon: Option<Daemon>,
    /// Number of active faults that keep the daemon down. The daemon restarts when all of these
    /// faults are healed.
    down: usize,
    exited: Option<Instant>,
    cgroup: Option<Cgroup>,
    exits: Vec<i32>,
}

impl State {
    /// Records the daemon's exit code, once.
    fn note_exit(&mut self) {
        let code = self.daemon.as_ref().and_then(Daemon::exit_code);
        if let (Some(code), None) = (code, self.exited) {
            self.exited = Some(Instant::now());
            self.exits.push(code);
        }
    }
}

impl Candidate {
    pub(crate) fn start(
        (number, kind): (usize, Kind),
        timings: DaemonTimings,
        places: Places,
        pod: Option<Place>,
    ) -> Result<Self, Failure> {
        let word = match kind {
            Kind::Supervised => "candidate",
            Kind::Sidecar => SIDECAR,
        };
        let identity = format!("{word}-{number}");
        let disk = Mount::small_disk().ok_or_else(|| Failure::new("needs root, to mount"))?;
        let directory = disk.path().join("status");
        let reader = match kind {
            Kind::Supervised => None,
            Kind::Sidecar => {
                let reader = Launch::new(&places.harness)
                    .argument("sidecar")
                    .arguments(["--identity", &identity])
                    .arguments(["--journal".as_ref(), places.journal(LEASE).as_os_str()])
                    .arguments(["--directory".as_ref(), directory.as_os_str()]);
                Some(reader.start()?)
            }
        };
        let candidate = Self {
            clock: (number % 2 == 1).then(JumpingClock::new).transpose()?,
            identity,
            kind,
            disk,
            number,
            places,
            timings,
            pod,
            state: Mutex::default(),
            _reader: reader,
        };
        candidate.launch(None)?;
        Ok(candidate)
    }

    /// Starts `other`, the binary of another version, if given.
    pub(crate) fn launch(&self, other: Option<&Path>) -> Result<(), Failure> {
        let program = other.unwrap_or(&self.places.program);
        let mut builder = Daemon::builder(program)
            .lease(LEASE)
            .identity(&self.identity)
            .uri(&self.places.uri)
            .timings(self.timings)
            .status_directory(&self.directory())
            .env("LEASEHOLD_TRACE", self.trace())
            .inside(&Node::Client(self.number).namespace());
        builder = match self.kind {
            Kind::Sidecar => builder.handoff_delay("0s"),
            Kind::Supervised => {
                let harness = self.places.harness.display().to_string();
                let journal = self.places.journal(LEASE).display().to_string();
                builder.workload([harness, "child".into(), "--journal".into(), journal])
            }
        };
        // These candidates create the collection of hints, so that leaders of all kinds use hints.
        if self.number.is_multiple_of(2) {
            builder = builder.flags(["--mongodb-watch=hints"]);
        }
        if let Some(clock) = &self.clock {
            builder = builder.clock(clock.clock());
        }
        if let (Some(pod), Some(cluster)) = (&self.pod, &self.places.cluster) {
            builder = pod.sidecar(builder, cluster.kubernetes.environment());
        }
        let daemon = builder.try_start()?;
        let mut state = self.state.lock().expect("no holder panics");
        if let Some(cgroup) = &state.cgroup {
            cgroup.add(daemon.pid());
        }
        state.note_exit();
        state.daemon = Some(daemon);
        state.exited = None;
        Ok(())
    }

    pub(crate) fn trace(&self) -> PathBuf {
        self.places
            .directory
            .join(format!("trace-{}", self.identity))
    }

    fn directory(&self) -> PathBuf {
        self.disk.path().join("status")
    }

    pub(crate) fn leads(&self) -> bool {
        let state = self.state.lock().expect("no holder panics");
        let Some(daemon) = &state.daemon else {
            return false;
        };
        daemon.exit_code().is_none() && daemon.leads()
    }

    /// Returns the token of the leader that the status names.
    pub(crate) fn token_of_leader(&self) -> Option<i64> {
        let state = self.state.lock().expect("no holder panics");
        let status = state.daemon.as_ref().and_then(Daemon::try_status)?;
        status["holder"]["token"].as_i64()
    }

    pub(crate) fn pid(&self, part: Part) -> Option<u32> {
        let state = self.state.lock().expect("no holder panics");
        let daemon = state.daemon.as_ref()?;
        let daemon = daemon.exit_code().is_none().then(|| daemon.pid())?;
        // The guard is a child of the daemon, and the command is a child of the guard.
        let guard = || pid::children(daemon).into_iter().next();
        match part {
            Part::Daemon => Some(daemon),
            Part::Guard => guard(),
            Part::Work => pid::children(guard()?).into_iter().next(),
        }
    }

    /// Kills a part of the daemon, and prevents a restart until [`up`](Self::up).
    pub(crate) fn kill(&self, part: Part) {
        self.state.lock().expect("no holder panics").down += 1;
        if let Some(pid) = self.pid(part) {
            pid::signal_if_there(pid, Signal::KILL);
        }
    }

    /// Sends SIGTERM to the daemon, and prevents a restart until [`up`](Self::up).
    pub(crate) fn stop(&self) {
        let mut state = self.state.lock().expect("no holder panics");
        state.down += 1;
        if let Some(daemon) = &state.daemon {
            daemon.term();
        }
    }

    pub(crate) async fn gone(&self) {
        eventually("the daemon exits", async || {
            let state = self.state.lock().expect("no holder panics");
            let daemon = state.daemon.as_ref();
            daemon.is_none_or(|daemon| daemon.exit_code().is_some())
        })
        .await;
    }

    /// Allows restarts again after a [`kill`](Self::kill) or [`stop`](Self::stop).
    pub(crate) fn up(&self) {
        self.state.lock().expect("no holder panics").down -= 1;
    }

    /// Limits the CPU time of the daemon and its children; `None` removes the limit.
    pub(crate) fn throttle(&self, cgroup: Option<Cgroup>) {
        let mut state = self.state.lock().expect("no holder panics");
        if let (Some(cgroup), Some(daemon)) = (&cgroup, &state.daemon) {
            cgroup.add(daemon.pid());
        }
        state.cgroup = cgroup;
    }

    pub(crate) fn keep_up(&self) -> Result<(), Failure> {
        let mut state = self.state.lock().expect("no holder panics");
        state.note_exit();
        let waited = state
            .exited
            .is_some_and(|exited| exited.elapsed() > RESTART);
        if state.down > 0 || !waited {
            return Ok(());
        }
        drop(state);
        self.launch(None)
    }

    /// Returns the exit codes of all daemons that have exited.
    pub(crate) fn exits(&self) -> Vec<i32> {
        let mut state = self.state.lock().expect("no holder panics");
        state.note_exit();
        state.exits.clone()
    }

    pub(crate) fn log(&self) -> String {
        let state = self.state.lock().expect("no holder panics");
        state.daemon.as_ref().map(Daemon::logs).unwrap_or_default()
    }
}
