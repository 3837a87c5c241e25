//! Runs a command only while there is authority for it.
//!
//! [`GuardedCommand`] starts a command. The command is gone by its deadline on CLOCK_BOOTTIME (I5),
//! unless a renewal of the authority moves the deadline. A [`StandbyGuard`] is started before the
//! acquisition, because the start takes milliseconds.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use leasehold_guard::{Command, GuardedCommand, Terms};
//!
//! # async fn example() -> std::io::Result<()> {
//! // `leasehold_guard::stage(std::env::args_os())` must come first in `main`.
//! let until = leasehold_clock::boot_now() + Duration::from_secs(10);
//! let terms = Terms {
//!     valid_until: until,
//!     kill_at: until + Duration::from_secs(3),
//! };
//! let mut workload = GuardedCommand::start(&Command::new("./scheduler"), terms, None)?;
//! // Each renewal moves the deadline: `workload.extend(later)`.
//! let ended = workload.ended().await;
//! println!("{:?}", ended.end);
//! # Ok(())
//! # }
//! ```
//!
//! The guard is the parent of the command and outlives the daemon; a shim becomes the command. The
//! module `client` documents what happens when one of them is killed or frozen, and the module
//! `progress` defines "gone".

pub mod attached;
mod children;
pub mod claim_share;
mod client;
#[cfg(test)]
#[path = "../../../tests/corpus/mod.rs"]
mod corpus;
pub mod dispositions;
mod exec_spec;
pub mod groups;
mod guard;
mod orphans;
mod own_variables;
pub mod prerequisites;
mod process;
mod progress;
mod shim;
mod signal_pipe;
pub mod socket;
mod stack_text;
pub mod survivors;
mod terminal;
mod wire;
mod witness;

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram as StdUnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command as Process, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use signal_hook::consts::SIGTERM;
use tokio::net::UnixDatagram;
use tokio::sync::watch;

use self::claim_share::ClaimShare;
use self::client::GuardClient;
use self::exec_spec::ExecSpec;
use self::own_variables::is_configuration;
use self::process::GuardProcess;
use self::socket::GuardSocket;
use self::terminal::Terminal;
use self::wire::{GuardBegin, GuardStart, ToGuard};
use leasehold_clock::BootTimer;
use leasehold_core::election::BootTime;

pub use guard::{PolicyObserver, Watched};
pub use leasehold_core::deadline_policy::{
    Action, DesiredState, Leftovers, PolicyInput, PolicyOptions, Stop, StopScope, Terms,
};
pub use orphans::Orphans;
pub use own_variables::without_ours;
pub use progress::{CommandEnd, CommandProgress, Termination};

/// This path names this program even after the program's file was replaced or deleted.
const EXECUTABLE: &str = "/proc/self/exe";
/// First argument of a guard or a shim. Only leasehold passes it, so `--help` does not list it.
const GUARD: &str = "__guard";
const SHIM: &str = "__shim";
/// First argument of the witness that a guard becomes. Its last argument is the end of authority on
/// CLOCK_BOOTTIME, in nanoseconds. Its standard input is the claim file with the lock.
pub const WITNESS: &str = "__bury";

/// An unneeded guard may take `DISMISS_ROUNDS` times this interval to exit before it is killed.
const DISMISS_ROUND: Duration = Duration::from_millis(1);
const DISMISS_ROUNDS: u32 = 100;
const KILLED_ROUNDS: u32 = 5_000;

/// Becomes a guard or a shim if `arguments` request it. Call this first in `main`, because a guard
/// must be small and start early.
pub fn stage(arguments: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    observed_stage(arguments, |_| None)
}

/// Like [`stage`], but observes each command that a guard starts.
pub fn observed_stage(
    arguments: impl IntoIterator<Item = OsString>,
    observe: impl Fn(&Watched) -> Option<Box<dyn PolicyObserver>>,
) -> Option<ExitCode> {
    let stage = arguments.into_iter().nth(1)?;
    if stage == GUARD {
        Some(guard::run(&observe))
    } else if stage == SHIM {
        Some(shim::run())
    } else {
        None
    }
}

/// A command to run.
#[derive(Debug, Clone)]
pub struct Command {
    exec_spec: ExecSpec,
    stop_signal: i32,
    stop_grace: Duration,
    linger: Duration,
    leftover_grace: Option<Duration>,
    stop_scope: StopScope,
    quiet: bool,
    executable: PathBuf,
    witness: Option<ExecSpec>,
}

impl Command {
    /// Creates a command for `program`, which is looked up as by `execvp`.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            exec_spec: ExecSpec {
                words: vec![program.into()],
                environment: Vec::new(),
            },
            stop_signal: SIGTERM,
            stop_grace: Duration::ZERO,
            linger: Duration::ZERO,
            leftover_grace: None,
            stop_scope: StopScope::Group,
            quiet: false,
            executable: EXECUTABLE.into(),
            witness: None,
        }
    }

    /// Creates the command of an attached guard, which knows the program and its arguments.
    pub fn of_attached_guard() -> Self {
        let mut command = Self::new("");
        command.exec_spec.words.clear();
        command
    }

    /// Appends arguments.
    #[must_use]
    pub fn arguments<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        let arguments = arguments.into_iter().map(Into::into);
        self.exec_spec.words.extend(arguments);
        self
    }

    /// Sets one environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.exec_spec.environment.push((name.into(), value.into()));
        self
    }

    /// Sets the stop signal (default SIGTERM), its recipients (default all descendants), and how
    /// long descendants may outlive the command (default zero).
    #[must_use]
    pub fn stopping(mut self, signal: i32, scope: StopScope, linger: Duration) -> Self {
        (self.stop_signal, self.stop_scope, self.linger) = (signal, scope, linger);
        self
    }

    /// Sets the time until SIGKILL after the container of an attached guard gets a stop signal
    /// (default zero).
    #[must_use]
    pub fn stop_grace(mut self, grace: Duration) -> Self {
        self.stop_grace = grace;
        self
    }

    /// Sets the time from the stop signal to SIGKILL for leftovers (default: as in the terms).
    #[must_use]
    pub fn leftover_grace(mut self, grace: Duration) -> Self {
        self.leftover_grace = Some(grace);
        self
    }

    /// Returns the time from the stop signal to SIGKILL for descendants that outlive the command.
    pub fn grace_of_leftovers(&self, terms: Terms) -> Duration {
        let of_terms = || terms.kill_at.since(terms.valid_until);
        self.leftover_grace.unwrap_or_else(of_terms)
    }

    /// Runs the command without standard input and without a terminal, and redirects its standard
    /// output to standard error, as for hooks.
    #[must_use]
    pub fn quiet(mut self) -> Self {
        self.quiet = true;
        self
    }

    /// Makes the guard a [`WITNESS`] with these arguments and this process's configuration if the
    /// daemon exits first. The witness starts once the command is gone, and keeps the claim locked.
    /// Has no effect without a claim, or with an attached guard.
    #[must_use]
    pub fn witness(mut self, arguments: impl IntoIterator<Item = OsString>) -> Self {
        let environment = std::env::vars_os().filter(|(name, _)| is_configuration(name));
        self.witness = Some(ExecSpec {
            words: arguments.into_iter().collect(),
            environment: environment.collect(),
        });
        self
    }

    /// Sets the `leasehold` binary that runs as guard and shim. The default is this program.
    #[must_use]
    pub fn executable(mut self, executable: impl Into<PathBuf>) -> Self {
        self.executable = executable.into();
        self
    }

    /// Starts the guard and a waiting shim. Needs no authority. Must be called inside a tokio
    /// runtime.
    pub fn prepare(self) -> io::Result<StandbyGuard> {
        orphans::adopt()?;
        let terminal = Terminal::of_this_process();
        let (socket, theirs) = wire::pair()?;
        let stdin = if self.quiet {
            OwnedFd::from(std::fs::File::open("/dev/null")?)
        } else {
            io::stdin().as_fd().try_clone_to_owned()?
        };
        let on_terminal = terminal.is_some();
        wire::post_with(
            socket.as_fd(),
            &GuardBegin {
                on_terminal,
                has_witness: self.witness.is_some(),
            },
            &[stdin.as_fd()],
        )?;
        let mut guard = Process::new(&self.executable);
        guard.arg0("leasehold").arg(GUARD).stdin(theirs);
        // CMD inherits the guard's environment, so it must not contain leasehold's own variables.
        without_ours(&mut guard);
        if self.quiet {
            guard.stdout(io::stderr().as_fd().try_clone_to_owned()?);
        }
        if on_terminal {
            // Without a terminal, the guard creates a session, which a group leader may not do.
            guard.process_group(0);
        }
        let guard = Pid::from_child(&guard.spawn()?);
        Ok(StandbyGuard {
            command: self,
            socket,
            guard: GuardProcess::child(guard)?,
            terminal,
            kept: None,
            socket_of_guard: None,
        })
    }
}

/// A command that runs while its authority lasts. Dropping it kills the command without waiting.
#[derive(Debug)]
pub struct GuardedCommand {
    orders: watch::Sender<ToGuard>,
    progress: watch::Receiver<CommandProgress>,
    guard: u32,
}

/// A command that can start immediately, because its guard is already waiting for authority. A
/// dropped guard exits, but only [`StandbyGuard::dismiss`] or [`Orphans`] reaps it.
#[derive(Debug)]
pub struct StandbyGuard {
    command: Command,
    socket: OwnedFd,
    guard: GuardProcess,
    terminal: Option<Terminal>,
    kept: Option<OwnedFd>,
    socket_of_guard: Option<Arc<GuardSocket>>,
}

impl StandbyGuard {
    /// Returns the process id of the waiting guard; 0 if the guard is not a child.
    pub fn guard(&self) -> u32 {
        self.guard.pid()
    }

    /// Waits until the guard has closed its connection or exited. Cancel safe.
    pub async fn lost(&self) -> io::Result<()> {
        // A waiting guard sends nothing, so its socket becomes readable only when it is closed.
        let socket = StdUnixDatagram::from(self.socket.try_clone()?);
        UnixDatagram::from_std(socket)?.readable().await
    }

    /// Lets the guard keep a descriptor open, which the command's descendants can find in /proc. Has
    /// no effect with a witness, because the guard is then hidden from the command.
    #[must_use]
    pub fn keeping(mut self, descriptor: OwnedFd) -> Self {
        self.kept = Some(descriptor);
        self
    }

    /// Starts the command with additional environment variables. The guard holds the lock of
    /// `claim` until the command and all its descendants are gone. Fails, and runs nothing, if a
    /// string contains a NUL, if no descriptor is free, or if the guard is gone and cannot be
    /// replaced. [`GuardedCommand::ended`] reports a command that cannot be executed.
    pub fn start(
        mut self,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        terms: Terms,
        claim: Option<ClaimShare>,
    ) -> io::Result<GuardedCommand> {
        self.command.exec_spec.environment.extend(environment);
        self.command.exec_spec.pass_sockets();
        let exec_spec = self.command.exec_spec.to_file()?;
        let here = !self.guard.is_attached();
        let witness = self.command.witness.as_ref();
        let witness = witness.filter(|_| here && claim.is_some());
        let witness = witness.map(ExecSpec::to_file).transpose()?;
        let timer = BootTimer::new()?;
        let foreground = (self.terminal.as_ref())
            .filter(|terminal| !self.command.quiet && terminal.is_for_cmd())
            .map_or(0, |_| groups::own_group());
        let start = GuardStart {
            policy: PolicyOptions {
                terms,
                stop_signal: self.command.stop_signal,
                stop_scope: self.command.stop_scope,
                leftovers: Leftovers {
                    linger: self.command.linger,
                    grace: self.command.grace_of_leftovers(terms),
                },
            },
            foreground,
            place: claim.as_ref().map(ClaimShare::place),
            has_witness: witness.is_some(),
            stop_grace: self.command.stop_grace,
            session: leasehold_clock::boot_now(),
        };
        let share = claim.as_ref().map(ClaimShare::try_clone).transpose()?;
        let kept = self.kept.take().filter(|_| witness.is_none());
        let with: Vec<_> = std::iter::once(exec_spec.as_fd())
            .chain(claim.as_ref().map(AsFd::as_fd))
            .chain(witness.as_ref().map(AsFd::as_fd))
            .chain(kept.as_ref().map(AsFd::as_fd))
            .collect();
        let (orders, newest) = watch::channel(ToGuard::new(terms));
        let (publish, progress) = watch::channel(CommandProgress::Starting);
        // Everything that can fail precedes the message that lets CMD run.
        let command = self.command.clone();
        let (mut guard, is_attached) = (self.guard(), self.guard.is_attached());
        let mut client = GuardClient::new(self, newest.clone(), publish.clone())?;
        if let Err(error) = client.start(&start, &with) {
            // The guard was killed while it waited.
            if is_attached {
                return Err(error);
            }
            let another = command.prepare()?;
            guard = another.guard();
            client = GuardClient::new(another, newest, publish)?;
            client.start(&start, &with)?;
        }
        client.claim = share;
        // The task ends when CMD is gone, even if all handles are dropped.
        tokio::spawn(client.keep(timer));
        Ok(GuardedCommand {
            orders,
            progress,
            guard,
        })
    }

    /// Ends a guard that is not needed, and waits briefly until it has exited.
    pub async fn dismiss(self) {
        drop(self.socket);
        for round in 0..DISMISS_ROUNDS + KILLED_ROUNDS {
            if self.guard.reap() {
                return;
            }
            if round == DISMISS_ROUNDS {
                // The guard is probably stopped (SIGSTOP). Killing it is safe, because it guards no
                // command yet.
                self.guard.signal(Signal::KILL);
            }
            tokio::time::sleep(DISMISS_ROUND).await;
        }
    }
}

impl GuardedCommand {
    /// Starts `command` under a guard; see [`Command::prepare`] and [`StandbyGuard::start`].
    pub fn start(command: &Command, terms: Terms, claim: Option<ClaimShare>) -> io::Result<Self> {
        command.clone().prepare()?.start([], terms, claim)
    }

    /// Returns a workload without a process for tests, and the sender of its progress.
    #[cfg(any(test, feature = "stand-in"))]
    pub fn stand_in() -> (Self, watch::Sender<CommandProgress>) {
        let terms = Terms::without_grace(BootTime::from_nanos(u64::MAX));
        let (publish, progress) = watch::channel(CommandProgress::Running { pid: 0 });
        let workload = Self {
            orders: watch::channel(ToGuard::new(terms)).0,
            progress,
            guard: 0,
        };
        (workload, publish)
    }

    /// Returns the process id of the guard; 0 if the guard is not a child.
    pub fn guard(&self) -> u32 {
        self.guard
    }

    /// Returns the newest desired state of CMD.
    pub fn desired(&self) -> DesiredState {
        self.orders.borrow().desired
    }

    /// Changes the desired state of CMD. Never waits; only the newest state counts.
    pub fn update(&self, newer: impl FnOnce(DesiredState) -> DesiredState) {
        self.orders
            .send_modify(|wanted| wanted.desired = newer(wanted.desired));
    }

    /// Moves the deadline after a renewal.
    pub fn extend(&self, terms: Terms) {
        self.update(|desired| desired.extended(terms));
    }

    /// Asks CMD to end with `signal`. CMD is killed at the earliest `kill_at` of its terms and of
    /// all stops.
    pub fn stop(&self, signal: i32, kill_at: BootTime) {
        let stop = Stop { signal, kill_at };
        self.update(|desired| desired.stopped(stop));
    }

    /// Kills CMD now.
    pub fn kill(&self) {
        self.update(DesiredState::killed);
    }

    /// Relays a signal to CMD's first process, or SIGCONT to all processes. Replaces a signal that
    /// the guard has not read yet.
    pub fn signal(&self, signal: i32) {
        self.orders.send_modify(|wanted| {
            wanted.relay = signal;
            wanted.relays = wanted.relays.wrapping_add(1);
        });
    }

    /// Returns CMD's progress.
    pub fn progress(&self) -> CommandProgress {
        *self.progress.borrow()
    }

    /// Waits for the next change of the progress; never returns after the end. Cancel safe.
    pub async fn changed(&mut self) -> CommandProgress {
        if self.progress.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        *self.progress.borrow_and_update()
    }

    /// Waits until CMD and all its descendants are gone. Cancel safe.
    pub async fn ended(&mut self) -> Termination {
        loop {
            if let CommandProgress::Gone(ended) = *self.progress.borrow_and_update() {
                return ended;
            }
            self.changed().await;
        }
    }
}
