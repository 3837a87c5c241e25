//! Runs the workload (a command and hooks) while, and only while, this replica leads.
//!
//! The election changes the desired state of the workload with an [`Order`], and a guard process
//! enforces the state ([`leasehold_guard`]). The supervisor passes the newest state to the guard,
//! and notifies the election when the workload has ended. `leasehold lock` uses [`command`] alone.

#![forbid(unsafe_code)]

pub mod command;
mod command_run;
mod guard_presence;
mod health;
mod hook;
mod program;
mod readiness;
mod settings;

use std::ffi::OsString;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tracing::{error, info, warn};

pub use command::StopMethod;
pub use command_run::CommandRun;
pub use health::Health;
pub use program::Program;
pub use readiness::Readiness;
pub use settings::{HealthCheck, HealthConfig, HooksConfig};

use self::command::{CommandEvent, GuardChange, StandbyCommand, SupervisedEnd, exit_code};
use self::command_run::CommandRuns;
use self::guard_presence::GuardPresence;
use self::hook::Hook;
use self::program::LeftoverProcess;

use leasehold_clock as clock;
use leasehold_core::election::{Input, Order, OrderKind, Terms, Token};
use leasehold_guard::claim_share::{ClaimPlace, ClaimShares};
use leasehold_guard::dispositions::signal_name;
use leasehold_guard::socket::GuardSocket;
use leasehold_guard::{Command, CommandEnd, DesiredState};
use leasehold_host::cause::{not_executable, not_executed};
use leasehold_host::duration::shown;
use leasehold_host::exit;
use leasehold_host::log::millis;

/// Pause before the next standby guard starts, so that the daemon can release the lease or exit
/// first.
const PREPARE_PAUSE: Duration = Duration::from_secs(1);

/// A start waits at most this long for the end of the previous command to be recorded on disk.
const RECORDED_WITHIN: Duration = Duration::from_secs(1);

/// Maximum time for a guard to execute a command. A longer delay means that a disk hangs or the
/// container is frozen.
const STARTED_WITHIN: Duration = Duration::from_secs(10);

/// Commands and options of a supervisor.
pub struct SupervisorOptions {
    /// Environment of the commands.
    pub program: Program,
    /// The command.
    pub command: SupervisedProgram,
    /// How the command is asked to stop on a voluntary step-down.
    pub stopping: StopMethod,
    /// Hooks that run when leadership begins and ends.
    pub hooks: HooksConfig,
    /// Reports to the election whether a guard is available.
    pub readiness: Arc<Readiness>,
    /// The lock of the claim. The workload counts as running while a guard shares this lock.
    pub claims: ClaimShares,
    /// Arguments of the witness, which releases the lease after the daemon is killed; `None`
    /// without a witness.
    pub witness: Option<Vec<OsString>>,
}

/// The command of a supervisor.
#[derive(Debug)]
pub enum SupervisedProgram {
    /// No command, only hooks.
    None,
    /// A program and its arguments, run by a guard that is a child of this process.
    Words(Vec<OsString>),
    /// The command of a guard that connects to this socket.
    Attached(GuardSocket),
}

/// Observer of the workload, used by metrics and by callers that wait for the workload's end.
pub trait WorkloadObserver: Send {
    /// Called when the command has started (`up`), or is no longer running.
    fn up(&mut self, up: bool);
    /// Called when the command is gone after a stop request; `took` is the time since the request.
    fn stopped(&mut self, took: Duration);
    /// Called before the claim ends if the claim's command was not started; `why` is the reason.
    fn not_started(&mut self, token: Token, why: &str);
    /// Called when the command exited by itself with this code. `interrupted` is true if a terminal
    /// key ended the command, so the daemon should exit too.
    fn ended(&mut self, code: u8, interrupted: bool);
}

/// The desired state of the workload, with the token of its claim; `None` before the first order.
pub type DesiredStates = watch::Receiver<Option<(Token, DesiredState)>>;

/// Applies the election's orders to the desired state of the workload.
#[derive(Debug)]
pub struct Orders {
    newest: watch::Sender<Option<(Token, DesiredState)>>,
    stopping: StopMethod,
}

impl Orders {
    /// Creates the sender, and the receiver for the supervisor.
    pub fn channel(stopping: StopMethod) -> (Self, DesiredStates) {
        let (newest, receiver) = watch::channel(None);
        (Self { newest, stopping }, receiver)
    }

    /// Applies an order.
    pub fn give(&self, Order { token, kind }: Order) {
        let graceful = self.stopping.requested_now();
        self.newest.send_modify(|newest| {
            if let OrderKind::Start(terms) = kind {
                *newest = Some((token, DesiredState::run(terms)));
            }
            // Orders for an older claim have no effect, because its workload is gone.
            if let Some((_, desired)) = newest.as_mut().filter(|(of, _)| *of == token) {
                *desired = desired.ordered(kind, graceful);
            }
        });
    }
}

/// Runs the workload according to the election's orders.
pub struct Supervisor<W> {
    options: SupervisorOptions,
    desired: DesiredStates,
    inputs: mpsc::Sender<Input>,
    runs: CommandRuns,
    observer: W,
    command: Option<StandbyCommand>,
    /// Name of the program in log lines.
    name: OsString,
    guard: GuardPresence,
    on_lead: Hook,
    on_step_down: Hook,
}

impl<W: WorkloadObserver> Supervisor<W> {
    /// Creates a supervisor that sends to the election's `inputs`.
    pub fn new(
        mut options: SupervisorOptions,
        desired: DesiredStates,
        inputs: mpsc::Sender<Input>,
        observer: W,
    ) -> Self {
        let on_lead = Hook::new(hook::ON_LEAD, ClaimPlace::OnLead, &options.hooks.on_lead);
        let place = ClaimPlace::OnStepDown;
        let on_step_down = Hook::new(hook::ON_STEP_DOWN, place, &options.hooks.on_step_down);
        let program = std::mem::replace(&mut options.command, SupervisedProgram::None);
        let (command, socket, name) = match program {
            SupervisedProgram::None => (None, None, OsString::new()),
            SupervisedProgram::Words(words) => {
                let name = words.first().cloned().unwrap_or_default();
                (options.program.command(&words, None), None, name)
            }
            SupervisedProgram::Attached(socket) => {
                let command = options
                    .program
                    .environment(Command::of_attached_guard(), None);
                (Some(command), Some(socket), "the command".into())
            }
        };
        let command = command.map(|command| match &options.witness {
            Some(arguments) => command.witness(arguments.iter().cloned()),
            None => command,
        });
        let (lease, readiness) = (
            options.program.lease.clone(),
            Arc::clone(&options.readiness),
        );
        let guard = GuardPresence::new(lease, readiness, socket.is_some());
        let command = command.map(|command| StandbyCommand::new(command, options.stopping, socket));
        Self {
            options,
            desired,
            inputs,
            runs: CommandRuns::default(),
            observer,
            command,
            name,
            guard,
            on_lead,
            on_step_down,
        }
    }

    /// Returns a receiver for the state of the command.
    pub fn runs(&self) -> watch::Receiver<CommandRun> {
        self.runs.subscribe()
    }

    /// Applies orders until the sender is dropped.
    pub async fn run(mut self) {
        let mut served = None;
        let mut pause = Duration::ZERO;
        loop {
            let unserved = |desired: &Option<(Token, DesiredState)>| {
                desired.is_some_and(|(token, _)| Some(token) != served)
            };
            let next = tokio::select! {
                biased;
                desired = self.desired.wait_for(unserved) => match desired.map(|newest| *newest) {
                    Ok(Some((token, _))) => Ok(token),
                    // The daemon is exiting.
                    Ok(None) | Err(_) => break,
                },
                change = guard_change(self.command.as_mut(), pause) => Err(change),
            };
            pause = PREPARE_PAUSE;
            let token = match next {
                Ok(token) => token,
                Err(change) => {
                    self.guard.changed(change).await;
                    continue;
                }
            };
            served = Some(token);
            if self.serve(token).await {
                self.send(Input::WorkloadDone { token }).await;
            }
            if self.guard.is_attached() && !self.has_guard() {
                if self.desired(token).is_some_and(|desired| desired.runs()) {
                    self.send(Input::WorkloadEnded { token }).await;
                }
                // The guard connects again for the next command.
                self.guard.left().await;
            }
            self.send(Input::WorkloadGone { token }).await;
        }
        if let Some(command) = self.command.take() {
            command.dismiss().await;
        }
    }

    /// Returns true if a guard is waiting for the command. If the command was not started, its
    /// guard still waits.
    fn has_guard(&self) -> bool {
        self.command.as_ref().is_some_and(StandbyCommand::has_guard)
    }

    /// Runs the command and the hooks of one claim. Returns true if the on_step_down hook confirmed
    /// that an external workload has stopped.
    async fn serve(&mut self, token: Token) -> bool {
        let lead = self.start_lead(token).await;
        match self.command.take() {
            None => self.stop_requested().await,
            Some(mut command) => {
                self.run_command(&mut command, token).await;
                self.command = Some(command);
            }
        }
        if let Some(lead) = lead {
            // The task does not panic, and is never aborted.
            self.on_lead.left = lead.await.unwrap_or_default();
        }
        self.step_down(token).await && self.options.hooks.on_step_down_stops_workload
    }

    /// Starts the on_lead hook, and a task that stops the hook once its claim no longer leads.
    async fn start_lead(&mut self, token: Token) -> Option<JoinHandle<LeftoverProcess>> {
        let until = clock::boot_now() + self.options.hooks.timeout;
        let desired = self.desired(token).filter(DesiredState::runs)?;
        let terms = hook::bounded(desired.terms, until);
        let hook = self.on_lead.start(&self.options, token, terms).await?;
        let lease = self.options.program.lease.clone();
        let lead = hook::lead(hook, self.desired.clone(), token, until, lease);
        Some(tokio::spawn(lead))
    }

    /// Runs the on_step_down hook, even if leadership was lost long ago. Returns true if the hook
    /// exited 0.
    async fn step_down(&mut self, token: Token) -> bool {
        let mut limit = self.options.hooks.timeout;
        let terms = Terms::without_grace(clock::boot_now() + limit);
        let hook = self.on_step_down.start(&self.options, token, terms).await;
        let Some(mut hook) = hook else { return false };
        let daemon_ends = async { while self.desired.changed().await.is_ok() {} };
        tokio::select! {
            _ = hook.ended() => {}
            () = daemon_ends => {
                hook.kill();
                limit = Duration::ZERO;
            }
            // The guard kills the hook at this time.
            () = tokio::time::sleep(limit) => limit = Duration::ZERO,
        }
        let ended = self.on_step_down.left.outlast(hook, limit).await;
        hook::report(&self.options.program.lease, hook::ON_STEP_DOWN, ended)
    }

    async fn run_command(&mut self, command: &mut StandbyCommand, token: Token) {
        let claims = &self.options.claims;
        let claim = claims.share(ClaimPlace::Command, RECORDED_WITHIN).await;
        let Some(desired) = self.desired(token).filter(DesiredState::runs) else {
            return;
        };
        let started = claim.and_then(|claim| {
            let environment = Program::of_token(Some(token));
            command.start(environment, desired.terms, Some(claim), None)
        });
        let mut command = match started {
            Ok(command) => command,
            Err(error) => {
                let gone = [io::ErrorKind::NotConnected, io::ErrorKind::BrokenPipe];
                let (lease, why) = (&self.options.program.lease, not_executed(&error));
                if self.guard.is_attached() && gone.contains(&error.kind()) {
                    warn!(%lease, token = token.get(), "workload guard disconnected before the start");
                } else {
                    error!(
                        %lease, token = token.get(), kind = %error.kind(),
                        errno = error.raw_os_error(), "failed to spawn the workload"
                    );
                }
                self.observer.not_started(token, &why);
                return self.ended(token, exit::CANNOT_EXECUTE, false).await;
            }
        };
        let started_by = tokio::time::sleep(STARTED_WITHIN);
        tokio::pin!(started_by);
        let (mut started, mut closed) = (false, false);
        let finished = loop {
            tokio::select! {
                // If several branches are ready, a new desired state comes first.
                biased;
                changed = self.desired.changed(), if !closed => {
                    closed = changed.is_err();
                    match self.desired(token).filter(|_| !closed) {
                        Some(desired) => {
                            if !desired.runs() {
                                self.runs.stops();
                            }
                            command.apply(desired);
                        }
                        // The daemon is exiting, and the workload must not outlive it.
                        None => command.kill(),
                    }
                }
                event = command.next() => match event {
                    CommandEvent::Started { pid } => {
                        started = true;
                        self.up(Some(token));
                        info!(
                            lease = %self.options.program.lease, token = token.get(), pid,
                            "workload started"
                        );
                    }
                    // The leader steps down now, while the guard still stops leftover processes.
                    CommandEvent::Exited => {
                        self.runs.stops();
                        self.send(Input::WorkloadEnded { token }).await;
                    }
                    CommandEvent::Stuck => self.send(Input::WorkloadStuck { token }).await,
                    CommandEvent::Gone(finished) => break finished,
                },
                () = &mut started_by, if !started => {
                    started = true;
                    let cause = match self.guard.is_attached() {
                        true => "is its container frozen?",
                        false => "does the disk of the status directory hang?",
                    };
                    error!(
                        lease = %self.options.program.lease, token = token.get(),
                        waited_ms = millis(STARTED_WITHIN),
                        "workload did not start in time ({cause}); stepping down"
                    );
                    command.kill();
                    let why = format!("it did not start within {}", shown(STARTED_WITHIN));
                    self.observer.not_started(token, &why);
                    self.send(Input::WorkloadEnded { token }).await;
                }
            }
        };
        self.up(None);
        self.report(token, &finished);
        if finished.by_itself() {
            match exit_code(finished.ended.end, finished.is_incomplete()) {
                Some(code) => self.ended(token, code, finished.ended.interrupted).await,
                None => self.send(Input::WorkloadEnded { token }).await,
            }
        }
    }

    async fn ended(&mut self, token: Token, code: u8, interrupted: bool) {
        self.send(Input::WorkloadEnded { token }).await;
        self.observer.ended(code, interrupted);
    }

    async fn stop_requested(&mut self) {
        let ends = |desired: &Option<(Token, DesiredState)>| {
            desired.is_none_or(|(_, desired)| !desired.runs())
        };
        // This call fails only if the daemon exits.
        let _ = self.desired.wait_for(ends).await;
    }

    fn desired(&self, token: Token) -> Option<DesiredState> {
        desired(&self.desired.borrow(), token)
    }

    fn is_authorized(&self, token: Token) -> bool {
        let valid_until = self.desired(token).map(|desired| desired.terms.valid_until);
        valid_until.is_some_and(|valid_until| valid_until > clock::boot_now())
    }

    fn up(&mut self, token: Option<Token>) {
        self.runs.set(token);
        self.observer.up(token.is_some());
    }

    fn report(&mut self, token: Token, finished: &SupervisedEnd) {
        let lease = &self.options.program.lease;
        let ended = finished.ended;
        let (claim, token, code) = (token, token.get(), ended.end.exit_code());
        if ended.guard_lost && self.guard.is_attached() {
            return warn!(%lease, token, "workload guard disconnected or exited; its command has ended");
        }
        if ended.guard_lost {
            error!(%lease, token, "the workload lost its guard and was killed");
        }
        if finished.is_incomplete() {
            error!(%lease, token, "the workload exited with 0, but processes that it left behind were stopped");
        }
        if let Some(took) = finished.stopped_after {
            info!(%lease, token, code, elapsed_ms = millis(took), "workload stopped");
            self.observer.stopped(took);
            return;
        }
        match ended.end {
            CommandEnd::NotExecuted(errno) | CommandEnd::NotSpawned(errno) => {
                let why = not_executable(&self.name, &io::Error::from_raw_os_error(errno));
                let command = self.name.display().to_string();
                match self.guard.is_attached() {
                    true => {
                        error!(%lease, token, errno, "failed to execute the workload; for the reason, see the log of its container")
                    }
                    false => {
                        error!(%lease, token, command, why, errno, "failed to execute the workload")
                    }
                }
                self.observer.not_started(claim, &why);
            }
            CommandEnd::Signalled(signal) if ended.interrupted => {
                let signal = signal_name(signal);
                let key = match signal.as_str() {
                    "SIGINT" => "Ctrl-C",
                    _ => "Ctrl-\\",
                };
                info!(%lease, token, code, "workload ended by {signal} ({key})");
            }
            CommandEnd::Exited(_) | CommandEnd::Signalled(_) if finished.by_itself() => {
                warn!(%lease, token, code, "workload exited by itself");
            }
            _ if self.guard.is_attached() && self.is_authorized(claim) => {
                info!(%lease, token, "workload stopped, because its container was asked to stop");
            }
            _ => warn!(%lease, token, "workload stopped by its guard"),
        }
    }

    async fn send(&self, input: Input) {
        // This call fails only if the daemon exits.
        let _ = self.inputs.send(input).await;
    }
}

/// Waits for the next change in the guard's state. Never returns if `command` is `None`.
async fn guard_change(command: Option<&mut StandbyCommand>, pause: Duration) -> GuardChange {
    match command {
        Some(command) => command.change(pause).await,
        None => std::future::pending().await,
    }
}

fn desired(newest: &Option<(Token, DesiredState)>, token: Token) -> Option<DesiredState> {
    let newest = newest.filter(|(of, _)| *of == token);
    newest.map(|(_, desired)| desired)
}

#[cfg(test)]
mod tests;
