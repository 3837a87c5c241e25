//! A command that runs under a renewable authority, for `run -- CMD` and `lock -- CMD`.
//!
//! Safety depends on the order of the steps:
//!
//! 1. [`StandbyCommand::prepare`] starts the guard, which needs no authority.
//! 2. [`StandbyCommand::start`] passes the deadlines of the authority to the guard. The guard
//!    executes the command only after it has received the deadlines, and only before they pass.
//! 3. [`SupervisedCommand::extend`] moves the deadline after each acknowledged renewal, but never
//!    after [`SupervisedCommand::lose`]. The guard sends SIGKILL at the newest `kill_at`, or when
//!    the grace period of a stop request ends, whichever is first.
//! 4. The caller releases the authority only after [`CommandEvent::Gone`].

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tracing::warn;

use leasehold_clock as clock;
use leasehold_core::election::BootTime;
use leasehold_guard::claim_share::ClaimShare;
use leasehold_guard::socket::{GuardSocket, RefusedGuard};
use leasehold_guard::{
    Command, CommandEnd, CommandProgress, DesiredState, GuardedCommand, StandbyGuard, Stop,
    StopScope, Termination, Terms,
};
use leasehold_host::cause::process_limit;
use leasehold_host::duration::shown;
use leasehold_host::exit;

/// A command counts as stuck if it still runs when `loss_grace` and this time have passed since
/// SIGKILL was due. Killed processes exit within milliseconds, unless in uninterruptible sleep or
/// protected from signals.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(1);

/// If no guard is connected for this time, its absence is reported.
const GUARD_MISSED_AFTER: Duration = Duration::from_secs(5);

/// Maximum time to read the guard's report after this process was frozen.
const UNREAD_MAX: Duration = Duration::from_millis(100);

/// A command that is not running yet; once prepared, it has a guard that waits to start it.
pub struct StandbyCommand {
    command: Command,
    stopping: StopMethod,
    guard: Option<StandbyGuard>,
    /// The socket that the guard connects to, if the guard is in another container.
    socket: Option<Arc<GuardSocket>>,
}

/// A change in the guard's state while its command is not running.
#[derive(Debug)]
pub enum GuardChange {
    /// The command can be started: a guard waits, or will be started together with the command.
    Ready,
    /// The guard has closed its connection.
    Lost,
    /// No guard has connected to this socket for a while.
    Absent(PathBuf),
    /// A guard connected and was refused.
    Refused(RefusedGuard),
}

/// How a command is asked to stop.
#[derive(Debug, Clone, Copy)]
pub struct StopMethod {
    /// Signal that asks the command to stop.
    pub signal: i32,
    /// Recipients of that signal.
    pub scope: StopScope,
    /// Time allowed for the command to stop on request.
    pub grace: Duration,
    /// Time allowed for descendants to exit by themselves after the command has exited.
    pub linger: Duration,
}

impl StopMethod {
    pub(crate) fn requested_now(&self) -> Stop {
        Stop {
            signal: self.signal,
            kill_at: clock::boot_now() + self.grace,
        }
    }
}

impl StandbyCommand {
    /// Creates an unprepared command. Its guard connects to `socket`; without a socket, this
    /// process starts the guard.
    pub fn new(command: Command, stopping: StopMethod, socket: Option<GuardSocket>) -> Self {
        let command = command.stopping(stopping.signal, stopping.scope, stopping.linger);
        Self {
            command: command.stop_grace(stopping.grace),
            stopping,
            guard: None,
            socket: socket.map(Arc::new),
        }
    }

    /// Waits for the next change in the guard's state. Without a socket, starts a missing guard
    /// after `pause`. Cancel safe.
    pub async fn change(&mut self, pause: Duration) -> GuardChange {
        match (&self.socket, &self.guard) {
            (None, Some(_)) => std::future::pending().await,
            (None, None) => {
                tokio::time::sleep(pause).await;
                self.prepare();
                GuardChange::Ready
            }
            (Some(_), Some(guard)) => {
                // A guard whose connection cannot be watched counts as lost.
                let _ = guard.lost().await;
                self.guard = None;
                GuardChange::Lost
            }
            (Some(socket), None) => {
                let accepted = timeout(GUARD_MISSED_AFTER, socket.accept(&self.command)).await;
                match accepted {
                    Ok(Ok(guard)) => {
                        self.guard = Some(guard);
                        GuardChange::Ready
                    }
                    Ok(Err(why)) => GuardChange::Refused(why),
                    Err(_) => GuardChange::Absent(socket.path().to_owned()),
                }
            }
        }
    }

    /// Returns true if a guard waits to start the command.
    pub fn has_guard(&self) -> bool {
        self.guard.is_some()
    }

    /// Starts the guard. A failed attempt is repeated by the next call, or when the command starts.
    pub fn prepare(&mut self) {
        if self.guard.is_none() {
            self.guard = self.command.clone().prepare().ok();
        }
    }

    /// Starts the command under an authority. If [`StandbyGuard::start`] fails, nothing runs. The
    /// guard keeps `descriptor` open, where the command's descendants can find it in /proc.
    pub fn start(
        &mut self,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        terms: Terms,
        claim: Option<ClaimShare>,
        descriptor: Option<OwnedFd>,
    ) -> io::Result<SupervisedCommand> {
        let mut guard = match self.guard.take() {
            Some(guard) => guard,
            None if self.socket.is_some() => return Err(io::ErrorKind::NotConnected.into()),
            None => self.command.clone().prepare()?,
        };
        if let Some(descriptor) = descriptor {
            guard = guard.keeping(descriptor);
        }
        let workload = guard.start(environment, terms, claim)?;
        let grace = self.command.grace_of_leftovers(terms);
        Ok(SupervisedCommand::new(workload, self.stopping, grace))
    }

    /// Ends a waiting guard and reaps it, because PID 1 of a container might not reap orphans.
    pub async fn dismiss(self) {
        if let Some(guard) = self.guard {
            guard.dismiss().await;
        }
    }
}

/// A running command.
pub struct SupervisedCommand {
    workload: GuardedCommand,
    stopping: StopMethod,
    leftover_grace: Duration,
    exited: bool,
    stopped_at: Option<BootTime>,
    killed_at: Option<BootTime>,
    killed: bool,
    stuck: bool,
    lingers: bool,
    cut_off: bool,
    leftovers_stopped_at: Option<BootTime>,
}

/// An event of a running command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandEvent {
    /// The command has begun to run.
    Started {
        /// Process id of the command.
        pid: u32,
    },
    /// The command exited by itself. Descendants may still run.
    Exited,
    /// The end of a killed command was not confirmed in time. [`CommandEvent::Gone`] may follow.
    Stuck,
    /// The command and all its descendants are gone.
    Gone(SupervisedEnd),
}

/// How a command ended, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SupervisedEnd {
    /// The end of the command and all its descendants.
    pub ended: Termination,
    /// True if the command exited by itself, and `cut_off` is false.
    pub exited: bool,
    /// True if the command exited by itself, and processes that it left behind were ended early,
    /// because the authority was lost or the command was killed.
    pub cut_off: bool,
    /// True if the command exited by itself, and processes that it left behind were stopped. Their
    /// work, such as the output of a filter, may be incomplete.
    pub leftovers_stopped: bool,
    /// Time from the first stop request to the end of the command; `None` without a request.
    pub stopped_after: Option<Duration>,
    /// True if the authority was lost before the command was gone, even if only the guard noticed.
    pub lost: bool,
    /// True if the command was killed while the authority lasted.
    pub killed: bool,
}

impl SupervisedEnd {
    /// Returns true if the command exited by itself, or only its guard was lost.
    pub fn by_itself(&self) -> bool {
        self.exited || self.stopped_after.is_none() && !self.lost
    }

    /// Returns true if the command exited with 0, but a process that it left behind was stopped.
    pub fn is_incomplete(&self) -> bool {
        self.leftovers_stopped && self.ended.end == CommandEnd::Exited(exit::DONE)
    }
}

impl SupervisedCommand {
    fn new(workload: GuardedCommand, stopping: StopMethod, leftover_grace: Duration) -> Self {
        Self {
            workload,
            stopping,
            leftover_grace,
            exited: false,
            stopped_at: None,
            killed_at: None,
            killed: false,
            stuck: false,
            lingers: false,
            cut_off: false,
            leftovers_stopped_at: None,
        }
    }

    /// Returns the newest deadlines.
    pub fn terms(&self) -> Terms {
        self.workload.desired().terms
    }

    /// Returns true once the desired state records the loss of authority.
    pub fn is_lost(&self) -> bool {
        self.workload.desired().lost
    }

    /// Merges a newer desired state.
    pub fn apply(&mut self, desired: DesiredState) {
        self.update(|before| before.merged(desired));
    }

    /// Moves the deadline after a renewal. Has no effect after a loss of authority.
    pub fn extend(&mut self, terms: Terms) {
        self.update(|desired| desired.extended(terms));
    }

    /// Asks the command to stop within its grace period, which begins with the first request.
    pub fn stop(&mut self) {
        let stop = self.stopping.requested_now();
        self.update(|desired| desired.stopped(stop));
    }

    /// Asks the command to stop because the authority is lost, and kills it at `kill_at`.
    pub fn lose(&mut self, kill_at: BootTime) {
        let signal = self.stopping.signal;
        self.update(|desired| desired.lost(Stop { signal, kill_at }));
    }

    /// Kills the command.
    pub fn kill(&mut self) {
        self.killed |= !self.is_lost();
        self.killed_at.get_or_insert_with(clock::boot_now);
        self.update(DesiredState::killed);
    }

    fn update(&mut self, newer: impl FnOnce(DesiredState) -> DesiredState) {
        self.workload.update(newer);
        let desired = self.workload.desired();
        if !desired.runs() {
            self.stopped_at.get_or_insert_with(clock::boot_now);
        }
        self.cut_off |= self.lingers && (desired.lost || desired.kill);
    }

    /// Relays a signal.
    pub fn signal(&self, signal: i32) {
        self.workload.signal(signal);
    }

    /// Waits for the next event; never returns after [`CommandEvent::Gone`]. Cancel safe.
    pub async fn next(&mut self) -> CommandEvent {
        loop {
            let stuck_at = self.stuck_at();
            let progress = tokio::select! {
                biased;
                progress = self.workload.changed() => progress,
                () = clock::until(stuck_at) => {
                    // After a freeze, the guard's report may still be unread.
                    let report = timeout(UNREAD_MAX, self.workload.changed()).await;
                    let Ok(progress) = report else {
                        self.stuck = true;
                        return CommandEvent::Stuck;
                    };
                    progress
                }
            };
            if let CommandProgress::Ending { by_us: false, .. } = progress {
                self.exited |= self.stopped_at.is_none();
            }
            match progress {
                CommandProgress::Running { pid } => return CommandEvent::Started { pid },
                // The authority is kept while descendants end by themselves.
                CommandProgress::Ending { lingers: true, .. } => {
                    self.lingers = true;
                    let DesiredState { lost, kill, .. } = self.workload.desired();
                    self.cut_off |= lost || kill;
                }
                CommandProgress::Ending {
                    by_us: false, end, ..
                } if self.stopped_at.is_none() => {
                    self.leftovers_stopped_at
                        .get_or_insert_with(clock::boot_now);
                    if std::mem::take(&mut self.lingers) {
                        self.report_leftovers();
                    }
                    // A command that was not executed leaves no processes behind. `Gone` reports
                    // the reason.
                    if end.not_executed().is_none() {
                        return CommandEvent::Exited;
                    }
                }
                CommandProgress::Gone(ended) => {
                    let now = clock::boot_now();
                    let lingered = std::mem::take(&mut self.lingers);
                    // After a freeze past the deadline, the loss may still be unnoticed.
                    self.cut_off |= lingered && self.is_expired(now);
                    // The newest report may have replaced a report that was never read.
                    if lingered && !ended.lingered && !self.cut_off && self.stopped_at.is_none() {
                        self.report_leftovers();
                    }
                    return CommandEvent::Gone(self.finished(ended));
                }
                CommandProgress::Starting | CommandProgress::Ending { .. } => {}
            }
        }
    }

    /// Returns the time at which the command counts as stuck: `loss_grace` plus
    /// [`CONFIRMED_WITHIN`] after SIGKILL is due. Processes that the command left behind count as
    /// stuck [`CONFIRMED_WITHIN`] after their own grace period.
    fn stuck_at(&self) -> Option<BootTime> {
        if self.stuck {
            return None;
        }
        let desired = self.workload.desired();
        let kill_at = desired.kill_at();
        let killed_at = self.killed_at.map_or(kill_at, |at| at.min(kill_at));
        let loss_grace = desired.terms.kill_at.since(desired.terms.valid_until);
        let command = self.stopped_at.map(|_| killed_at + loss_grace);
        let leftovers = self.leftovers_stopped_at.map(|at| at + self.leftover_grace);
        let killed = [command, leftovers].into_iter().flatten().min();
        killed.map(|at| at + CONFIRMED_WITHIN)
    }

    fn report_leftovers(&self) {
        let linger = shown(self.stopping.linger);
        warn!(%linger, "the command exited, but left processes that did not end within workload.linger; stopping them");
    }

    fn is_expired(&self, now: BootTime) -> bool {
        self.terms().valid_until <= now
    }

    fn finished(&self, ended: Termination) -> SupervisedEnd {
        let now = clock::boot_now();
        // After a freeze past the deadline, this process may learn of the command's end before it
        // notices the loss. If only the guard was lost, the authority may still be valid.
        let expired = self.is_expired(now);
        let by_guard = ended.by_us && (expired || !ended.guard_lost) || self.cut_off;
        let unnoticed = self.stopped_at.is_none() && by_guard;
        let exited = self.exited && !self.cut_off;
        let stopped_at = self.stopped_at.filter(|_| !exited);
        SupervisedEnd {
            ended,
            exited,
            cut_off: self.cut_off,
            leftovers_stopped: !ended.by_us && !ended.lingered,
            stopped_after: stopped_at.map(|at| now.since(at)),
            lost: self.is_lost() || unnoticed,
            killed: self.killed,
        }
    }
}

/// Returns the exit code to report; `None` if the deadline passed before the command began.
pub(super) fn exit_code(end: CommandEnd, is_incomplete: bool) -> Option<u8> {
    let limit = end.not_executed().and_then(|error| process_limit(&error));
    match end {
        CommandEnd::Refused => None,
        _ if is_incomplete => Some(exit::INCOMPLETE),
        _ if limit.is_some() => Some(exit::SYSTEM),
        // There is no exit code if the guard was lost.
        _ => Some(end.exit_code().unwrap_or(exit::KILLED)),
    }
}

#[cfg(test)]
mod tests;
