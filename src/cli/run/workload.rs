//! Builds the supervisor and health-check tasks from the configuration.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::cli::store_options::stopping;
use crate::config::{Config, OnExit, Sources, UriSource};
use crate::election::{Input, Timings, Token};
use crate::exit;
use crate::publish::directory::status_file;
use crate::publish::metrics::Metrics;
use crate::signals::{self, StopSignal};
use crate::supervisor::{
    DesiredStates, Health, Program, Readiness, SupervisedProgram, Supervisor, SupervisorOptions,
    WorkloadObserver,
};
use crate::workload::claim_share::ClaimShares;
use crate::workload::socket::GuardSocket;
use leasehold_host::CommandError;
use leasehold_host::program::check_executable;

/// Capacity of the channel for exits. The command exits at most once per claim.
const EXITS_MAX: usize = 4;

/// The program that a daemon supervises.
pub(super) enum Supervised {
    Nothing,
    Words(Vec<OsString>),
    Attached(PathBuf),
}

impl Supervised {
    pub(super) fn new(command: Vec<OsString>, config: &Config) -> Result<Self, CommandError> {
        match &config.workload.socket {
            None if command.is_empty() => Ok(Self::Nothing),
            None => Ok(Self::Words(command)),
            Some(path) if command.is_empty() => Ok(Self::Attached(path.clone())),
            Some(_) => {
                let what = "workload.socket and a command after -- cannot be used together";
                let fix = "remove one; with the socket, the command runs in another container: \
                           leasehold guard --socket FILE -- CMD";
                Err(CommandError::new(exit::CONFIGURATION, what).to_fix(fix))
            }
        }
    }

    /// Returns true if the daemon waits until the program has ended.
    pub(super) fn drains(&self) -> bool {
        !matches!(self, Self::Nothing)
    }

    /// Returns true if the election must send orders that start and stop the program or hooks.
    pub(super) fn supervises(&self, config: &Config) -> bool {
        let hooks = &config.hooks;
        self.drains() || !hooks.on_lead.is_empty() || !hooks.on_step_down.is_empty()
    }

    /// Returns the action that the daemon takes when the program has ended by itself.
    pub(super) fn on_exit(&self, config: &Config) -> OnExit {
        match self {
            Self::Attached(_) => OnExit::Release,
            Self::Nothing | Self::Words(_) => config.workload.on_exit,
        }
    }

    /// Fails if the program cannot be executed. An attached guard checks its program itself.
    pub(super) fn check(&self) -> Result<(), CommandError> {
        match self {
            Self::Words(words) => {
                (words.first()).map_or(Ok(()), |program| check_executable(program))
            }
            Self::Nothing | Self::Attached(_) => Ok(()),
        }
    }

    /// Binds the socket of an attached guard. The caller must hold the lock of the directory.
    fn bind(self) -> Result<SupervisedProgram, CommandError> {
        Ok(match self {
            Self::Nothing => SupervisedProgram::None,
            Self::Words(words) => SupervisedProgram::Words(words),
            Self::Attached(path) => {
                let bound = GuardSocket::bind(&path);
                let what = format!("listen on the socket {} (workload.socket)", path.display());
                SupervisedProgram::Attached(
                    bound.map_err(CommandError::failed(exit::CONFIGURATION, &what))?,
                )
            }
        })
    }
}

/// Maximum time from the timeout of a hook to the exit of its guard.
const HOOK_ENDS_WITHIN: Duration = Duration::from_secs(1);

/// Returns the maximum time that a guard outlives a killed daemon: the maximum duration of a hook
/// or the lease duration, whichever is longer. A command's deadline is at most one lease duration
/// ahead.
pub(super) fn outlives_daemon_by(config: &Config) -> Duration {
    let hook = config.hooks.timeout + HOOK_ENDS_WITHIN;
    config.lease.timings.lease_duration().max(hook)
}

/// Returns this daemon's flags, as arguments of the witness that releases the lease if this daemon
/// is killed. `None` if the daemon has no command of its own, if the witness could not read the
/// configuration again, or if hooks are configured, because services that a hook started would keep
/// running.
pub(super) fn witness(
    supervised: &Supervised,
    config: &Config,
    sources: &Sources,
) -> Option<Vec<OsString>> {
    // The container of an attached guard must not get the configuration.
    let here = matches!(supervised, Supervised::Words(_));
    let hooks = !config.hooks.on_lead.is_empty() || !config.hooks.on_step_down.is_empty();
    // In the witness, a descriptor such as /dev/stdin refers to another file.
    let descriptors = ["/dev/stdin", "/dev/fd", "/proc"];
    let is_descriptor = |path: &Path| descriptors.iter().any(|place| path.starts_with(place));
    let is_pipe = match &config.mongodb.uri {
        UriSource::Inline(_) => false,
        UriSource::File(path) => is_descriptor(path),
        UriSource::Pipe(..) => true,
    };
    let is_file = |path: &PathBuf| std::fs::metadata(path).is_ok_and(|found| found.is_file());
    if !here || hooks || is_pipe || !sources.files.iter().all(is_file) {
        return None;
    }
    // The first two words are the program and `run`.
    let flags = std::env::args_os().skip(2);
    Some(flags.take_while(|word| word != "--").collect())
}

/// Maximum time that the exiting daemon waits for the standby guard. The guard exits within
/// milliseconds. A stopped guard (SIGSTOP) is killed after 100 ms and gone within 5 s.
const CLOSED_WITHIN: Duration = Duration::from_secs(6);

pub(super) struct Workload {
    supervises: bool,
    tasks: JoinSet<&'static str>,
    exits: mpsc::Receiver<CommandExit>,
}

/// The newest claim whose command was not started, with the reason.
pub(super) type NotStarted = Option<(Token, String)>;

struct ExitForwarder {
    metrics: Metrics,
    exits: mpsc::Sender<CommandExit>,
    not_started: watch::Sender<NotStarted>,
}

impl WorkloadObserver for ExitForwarder {
    fn up(&mut self, up: bool) {
        self.metrics.workload_up(up);
    }

    fn stopped(&mut self, took: Duration) {
        self.metrics.workload_stopped(took);
    }

    fn not_started(&mut self, token: Token, why: &str) {
        self.not_started.send_replace(Some((token, why.to_owned())));
    }

    fn ended(&mut self, code: u8, interrupted: bool) {
        // A full channel already contains exits, so a further exit changes nothing.
        let _ = self.exits.try_send(CommandExit { code, interrupted });
    }
}

pub(super) struct CommandExit {
    /// The command's exit code, as a shell would report it.
    pub(super) code: u8,
    /// True if a key press in the terminal (Ctrl-C) ended the command.
    pub(super) interrupted: bool,
}

impl CommandExit {
    pub(super) fn exit(&self) -> signals::Exit {
        let signal = self.code.checked_sub(exit::SIGNALLED).map(i32::from);
        let signal = signal.filter(|_| self.interrupted);
        let key = signal.and_then(StopSignal::of_terminal);
        key.map_or(self.code.into(), signals::Exit::Key)
    }
}

pub(super) enum WorkloadEvent {
    Exited(CommandExit),
    Broken(&'static str),
}

impl Workload {
    /// Starts the configured tasks. While the health is unknown or no guard is connected, the
    /// election does not contend.
    pub(super) fn start(
        (supervised, witness): (Supervised, Option<Vec<OsString>>),
        config: &Config,
        directory: &Path,
        lock: OwnedFd,
        desired: Option<DesiredStates>,
        (inputs, timings): (&mpsc::Sender<Input>, &watch::Receiver<Timings>),
        (metrics, not_started): (&Metrics, watch::Sender<NotStarted>),
    ) -> Result<Self, CommandError> {
        let mut tasks = JoinSet::new();
        let (exits_sender, exits) = mpsc::channel(EXITS_MAX);
        let program = Program {
            lease: config.lease.name.clone(),
            identity: config.identity.name.clone(),
            // The path is absolute, because a command may change its working directory.
            status_file: status_file(directory),
        };
        let health = &config.workload.health;
        let external = !supervised.drains();
        let at_first = health
            .check()
            .is_none_or(|check| check.passes_at_first(external));
        let guarded = !matches!(supervised, Supervised::Attached(_));
        let readiness = Arc::new(Readiness::new(inputs.clone(), at_first, guarded));
        let mut runs = None;
        let supervises = desired.is_some();
        if let Some(desired) = desired {
            let command = supervised.bind()?;
            let options = SupervisorOptions {
                program: program.clone(),
                command,
                readiness: Arc::clone(&readiness),
                stopping: stopping(&config.workload),
                hooks: config.hooks.clone(),
                claims: ClaimShares::new(lock),
                witness,
            };
            let observer = ExitForwarder {
                metrics: metrics.clone(),
                exits: exits_sender,
                not_started,
            };
            let supervisor = Supervisor::new(options, desired, inputs.clone(), observer);
            runs = (!external).then(|| supervisor.runs());
            tasks.spawn(async move {
                supervisor.run().await;
                "supervisor"
            });
        }
        if let Some(check) = health.check() {
            let health = Health::new(check, health.clone(), program, timings.clone(), runs);
            tasks.spawn(async move {
                health.watch(readiness).await;
                "health"
            });
        }
        Ok(Self {
            supervises,
            tasks,
            exits,
        })
    }

    /// Waits briefly for the workload to end. The caller must have dropped the sender of orders.
    pub(super) async fn close(&mut self) {
        let supervised = async {
            while let Some(ended) = self.tasks.join_next().await {
                if matches!(ended, Ok("supervisor")) {
                    return;
                }
            }
        };
        if self.supervises {
            let _ = tokio::time::timeout(CLOSED_WITHIN, supervised).await;
        }
    }

    pub(super) async fn next_event(&mut self) -> WorkloadEvent {
        tokio::select! {
            Some(exit) = self.exits.recv() => WorkloadEvent::Exited(exit),
            Some(ended) = self.tasks.join_next() => WorkloadEvent::Broken(ended.unwrap_or("workload")),
            else => std::future::pending().await,
        }
    }
}
