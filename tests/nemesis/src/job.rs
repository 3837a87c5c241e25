//! Runs lock commands in loops. Each job is a new process of `leasehold lock NAME -- …`.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_testbed::daemon::boottime_ns;
use leasehold_testbed::network::Node;
use leasehold_testbed::{DaemonTimings, Failure, JumpingClock, Launch, Process, pid};
use rustix::process::Signal;

use crate::rival::Rival;
use crate::world::{LOCKS, Places};

/// Maximum number of jobs that hold the semaphore at once.
pub(crate) const SLOTS: u32 = 2;
/// Short work ends before the first renewal; most long work needs several renewals.
const SHORT_MILLIS: std::ops::Range<u64> = 0..60;
const LONG_MILLIS: std::ops::Range<u64> = 500..6_000;
/// Maximum pause between two jobs of a loop.
const PAUSE_MILLIS: u64 = 400;
const POLL: Duration = Duration::from_millis(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Exclusive,
    /// Like `Exclusive`, but the job uses the library instead of the command.
    Library,
    /// Shared and exclusive jobs contend for one lock.
    Shared,
    Writer,
    Slot,
    Rival(Rival),
}

impl Mode {
    pub(crate) fn lock(self) -> &'static str {
        match self {
            Self::Exclusive | Self::Library => "exclusive",
            Self::Shared | Self::Writer => "readers",
            Self::Slot => "slots",
            Self::Rival(rival) => rival.lock(),
        }
    }

    fn flags(self) -> Vec<String> {
        match self {
            Self::Exclusive | Self::Library | Self::Writer | Self::Rival(_) => Vec::new(),
            Self::Shared => vec!["--shared".to_owned()],
            Self::Slot => vec![format!("--slots={SLOTS}")],
        }
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Library => "library",
            Self::Shared => "shared",
            Self::Writer => "writer",
            Self::Slot => "slot",
            Self::Rival(rival) => rival.lock(),
        }
    }

    fn drawn() -> Self {
        match fastrand::u8(0..10) {
            0..3 => Self::Exclusive,
            3..5 => Self::Library,
            5..7 => Self::Shared,
            7 => Self::Writer,
            _ => Self::Slot,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Begun {
    pub(crate) identity: String,
    pub(crate) mode: Mode,
    /// CLOCK_BOOTTIME before the job started, in nanoseconds.
    pub(crate) started: u64,
    /// CLOCK_BOOTTIME after the exit in nanoseconds, and the exit code. `None` if the job was
    /// still running at the end of the run.
    pub(crate) exited: Option<(u64, i32)>,
}

pub(crate) struct Jobs {
    number: usize,
    /// The design of the locks and the wall clock of their holders; `None` for leasehold's own
    /// locks.
    rival: Option<(Rival, JumpingClock)>,
    places: Places,
    timings: DaemonTimings,
    running: Mutex<Option<(Begun, Arc<Process>)>>,
    ended: Mutex<Vec<Begun>>,
}

impl Jobs {
    pub(crate) fn new(number: usize, timings: DaemonTimings, places: Places) -> Self {
        Self {
            number,
            rival: None,
            places,
            timings,
            running: Mutex::default(),
            ended: Mutex::default(),
        }
    }

    pub(crate) fn of_rival(
        rival: Rival,
        number: usize,
        timings: DaemonTimings,
        places: Places,
    ) -> Result<Self, Failure> {
        let rival = Some((rival, JumpingClock::new()?));
        Ok(Self {
            rival,
            ..Self::new(number, timings, places)
        })
    }

    pub(crate) fn clock(&self) -> Option<&JumpingClock> {
        self.rival.as_ref().map(|(_, clock)| clock)
    }

    pub(crate) fn host(&self) -> usize {
        self.number
    }

    pub(crate) fn trace(&self) -> PathBuf {
        self.places
            .directory
            .join(format!("trace-jobs-{}", self.number))
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.places
            .directory
            .join(format!("log-jobs-{}", self.number))
    }

    /// Runs jobs until this future is dropped.
    pub(crate) async fn run(&self) -> Result<(), Failure> {
        for count in 0.. {
            let rival = self.rival.as_ref().map(|(rival, _)| Mode::Rival(*rival));
            let mode = rival.unwrap_or_else(Mode::drawn);
            let identity = format!("{}-{}-{count}", mode.word(), self.number);
            let started = boottime_ns();
            let process = Arc::new(self.launch(&identity, mode)?);
            let begun = Begun {
                identity,
                mode,
                started,
                exited: None,
            };
            let running = (begun.clone(), Arc::clone(&process));
            *self.running.lock().expect("no holder panics") = Some(running);
            let code = loop {
                if let Some(status) = process.exit_status() {
                    break leasehold_testbed::process::exit_code(status);
                }
                tokio::time::sleep(POLL).await;
            };
            let exited = Some((boottime_ns(), code));
            self.has_ended(Begun { exited, ..begun });
            tokio::time::sleep(Duration::from_millis(fastrand::u64(0..PAUSE_MILLIS))).await;
        }
        Ok(())
    }

    fn has_ended(&self, job: Begun) {
        *self.running.lock().expect("no holder panics") = None;
        self.ended.lock().expect("no holder panics").push(job);
    }

    fn launch(&self, identity: &str, mode: Mode) -> Result<Process, Failure> {
        let millis = match fastrand::u8(0..3) {
            0 => fastrand::u64(LONG_MILLIS),
            _ => fastrand::u64(SHORT_MILLIS),
        };
        match mode {
            Mode::Library => return self.launch_library(identity, millis),
            Mode::Rival(rival) => return self.launch_rival(rival, (identity, millis)),
            Mode::Exclusive | Mode::Shared | Mode::Writer | Mode::Slot => {}
        }
        let durations = [
            ("--lease-duration", self.timings.lease_duration),
            ("--lease-renew-deadline", self.timings.renew_deadline),
            ("--lease-renew-interval", self.timings.renew_interval),
            ("--workload-loss-grace", self.timings.loss_grace),
            ("--lease-retry-interval", self.timings.retry_interval),
            (
                "--mongodb-operation-timeout",
                self.timings.operation_timeout,
            ),
        ];
        let durations = durations.map(|(flag, time)| format!("{flag}={}ms", time.as_millis()));
        let launch = Launch::new(&self.places.program)
            .arguments(["lock", mode.lock(), "--identity", identity])
            .argument(format!(
                "--mongodb-uri-file={}",
                self.places.uri_file.display()
            ))
            .argument(format!("--mongodb-collection={LOCKS}"))
            .arguments(durations)
            .arguments(mode.flags())
            .argument("--")
            .argument(&self.places.harness)
            .arguments([
                "job",
                "--identity",
                identity,
                "--millis",
                &millis.to_string(),
            ])
            .arguments([
                "--journal".as_ref(),
                self.places.journal(mode.lock()).as_os_str(),
            ])
            .env("LEASEHOLD_TRACE", self.trace())
            .env("XDG_RUNTIME_DIR", &self.places.directory)
            .stderr(self.log())
            .inside(Node::Client(self.number).namespace());
        launch.start()
    }

    fn launch_rival(&self, rival: Rival, job: (&str, u64)) -> Result<Process, Failure> {
        let mut launch = rival
            .launch(job, self.timings, &self.places)?
            .stderr(self.log())
            .inside(Node::Client(self.number).namespace());
        if let Some(clock) = self.clock() {
            launch = launch.envs(clock.clock().variables().iter().cloned());
        }
        launch.start()
    }

    fn launch_library(&self, identity: &str, millis: u64) -> Result<Process, Failure> {
        let timings = [
            self.timings.lease_duration,
            self.timings.renew_deadline,
            self.timings.renew_interval,
            self.timings.retry_interval,
            self.timings.operation_timeout,
        ];
        let timings = timings.map(|time| time.as_millis().to_string()).join(",");
        let lock = Mode::Library.lock();
        let launch = Launch::new(&self.places.harness)
            .arguments(["embedder", "--identity", identity, "--lock", lock])
            .arguments(["--millis", &millis.to_string(), "--timings", &timings])
            .arguments(["--journal".as_ref(), self.places.journal(lock).as_os_str()])
            .arguments(["--uri-file".as_ref(), self.places.uri_file.as_os_str()])
            .arguments(["--trace".as_ref(), self.trace().as_os_str()])
            .stderr(self.log())
            .inside(Node::Client(self.number).namespace());
        launch.start()
    }

    /// Returns the process ids of the running command and its descendants, starting with the
    /// command.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let running = self.running.lock().expect("no holder panics").clone();
        let command = running.filter(|(_, process)| process.exit_status().is_none());
        let mut pids: Vec<u32> = command
            .map(|(_, process)| process.pid())
            .into_iter()
            .collect();
        let mut next = 0;
        while let Some(pid) = pids.get(next) {
            pids.extend(pid::children(*pid));
            next += 1;
        }
        pids
    }

    /// Kills the running command or one of its descendants.
    pub(crate) fn kill(&self) {
        if let Some(pid) = fastrand::choice(self.pids()) {
            pid::signal_if_there(pid, Signal::KILL);
        }
    }

    pub(crate) fn all(&self) -> Vec<Begun> {
        let mut all = self.ended.lock().expect("no holder panics").clone();
        let running = self.running.lock().expect("no holder panics").clone();
        all.extend(running.map(|(begun, _)| begun));
        all
    }
}
