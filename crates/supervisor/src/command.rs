//! A command under an authority that renews, for `run -- CMD` and `lock -- CMD`.
//!
//! Safety depends on the order of the steps:
//!
//! 1. [`StandbyCommand::prepare`] starts the guard. It needs no authority.
//! 2. [`StandbyCommand::start`] arms the guard with the deadlines of the authority. The command exists only
//!    after that, and only if the deadline has not passed at its exec.
//! 3. [`SupervisedCommand::extend`] moves the deadline with each acknowledged renewal, but never after
//!    [`SupervisedCommand::lose`]. The guard sends SIGKILL at the deadline, or at the end of the grace.
//! 4. The caller releases the authority only after [`CommandEvent::Gone`]: the command and all its
//!    descendants are gone.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use tracing::warn;

use leasehold_clock as clock;
use leasehold_core::election::BootTime;
use leasehold_guard::claim_share::ClaimShare;
use leasehold_guard::{
    Command, CommandEnd, CommandProgress, DesiredState, GuardedCommand, StandbyGuard, Stop,
    StopScope, Termination, Terms,
};
use leasehold_host::exit;

/// Time from the latest possible SIGKILL, and `loss_grace`, to when a command counts as stuck. A
/// killed process exits within milliseconds, unless it is in uninterruptible sleep or may not be
/// signalled.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(1);

/// Maximum time that the report of a guard is unread after this process was frozen.
const UNREAD_MAX: Duration = Duration::from_millis(100);

/// A command that does not run, and the guard that waits to start it, if there is one.
pub struct StandbyCommand {
    command: Command,
    stopping: StopMethod,
    guard: Option<StandbyGuard>,
}

/// How a command is asked to stop.
#[derive(Debug, Clone, Copy)]
pub struct StopMethod {
    /// Signal that asks the command to stop.
    pub signal: i32,
    /// Recipients of that signal.
    pub scope: StopScope,
    /// Time that the command has to stop on request.
    pub grace: Duration,
    /// Time that descendants have to end by themselves after the command has exited.
    pub linger: Duration,
}

impl StopMethod {
    /// Returns a stop that is requested now.
    pub fn requested_now(&self) -> Stop {
        Stop {
            signal: self.signal,
            kill_at: clock::boot_now() + self.grace,
        }
    }
}

impl StandbyCommand {
    /// Creates it for a command, without a guard yet.
    pub fn new(command: Command, stopping: StopMethod) -> Self {
        Self {
            command: command
                .stop_signal(stopping.signal)
                .stop_scope(stopping.scope)
                .linger(stopping.linger),
            stopping,
            guard: None,
        }
    }

    /// Returns true if a guard waits.
    pub fn is_prepared(&self) -> bool {
        self.guard.is_some()
    }

    /// Starts everything that needs no authority. A failed preparation is repeated by the next call
    /// or by the start.
    pub fn prepare(&mut self) {
        if self.guard.is_none() {
            self.guard = self.command.clone().prepare().ok();
        }
    }

    /// Starts the command under an authority, with the environment variables that are known only
    /// now. The guard holds the lock of `claim`, and keeps `descriptor` open for descendants.
    ///
    /// # Errors
    /// If nothing runs: see [`StandbyGuard::start`].
    pub fn start(
        &mut self,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        terms: Terms,
        claim: Option<ClaimShare>,
        descriptor: Option<OwnedFd>,
    ) -> io::Result<SupervisedCommand> {
        let mut guard = match self.guard.take() {
            Some(guard) => guard,
            None => self.command.clone().prepare()?,
        };
        if let Some(descriptor) = descriptor {
            guard = guard.keeping(descriptor);
        }
        let workload = guard.start(environment, terms, claim)?;
        let leftover_grace = self.command.grace_of_leftovers(terms);
        Ok(SupervisedCommand::new(
            workload,
            self.stopping,
            leftover_grace,
        ))
    }

    /// Ends a guard that still waits. PID 1 of a container may not reap orphans, so its end is
    /// awaited.
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
    /// Time between the stop signal and SIGKILL for processes that the command left.
    leftover_grace: Duration,
    /// True if the command exited by itself. A later stop ends only the processes that it left
    /// behind.
    exited: bool,
    stopped_at: Option<BootTime>,
    killed_at: Option<BootTime>,
    /// True if the command was killed while the authority lasted.
    killed: bool,
    stuck: bool,
    /// True while descendants of a command that has exited may end by themselves.
    lingers: bool,
    /// True if descendants were ended early, because the authority was lost or the command was
    /// killed.
    cut_off: bool,
    /// When the guard stopped the descendants that had not ended by themselves.
    leftovers_stopped_at: Option<BootTime>,
}

/// An event of a running command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandEvent {
    /// The command was executed as this process.
    Started {
        /// Its process id.
        pid: u32,
    },
    /// The command exited by itself. Descendants may take a while to end.
    Exited,
    /// The command was killed, and its end could not be confirmed in time. [`CommandEvent::Gone`] follows
    /// if it is confirmed after all.
    Stuck,
    /// The command and all its descendants are gone.
    Gone(SupervisedEnd),
}

/// How and why a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SupervisedEnd {
    /// The end of the command and all its descendants.
    pub ended: Termination,
    /// True if the command exited by itself, and the processes that it left had their time to end,
    /// or were stopped on request.
    pub exited: bool,
    /// True if the command exited by itself, and processes that it left were ended before their time,
    /// because the authority was lost or the command was killed.
    pub cut_off: bool,
    /// True if the command exited by itself, and processes that it left were stopped: after their
    /// time to end by themselves, or before. Their work, such as the output of a filter, may be
    /// incomplete.
    pub leftovers_stopped: bool,
    /// How long the command took to end after it was first asked to; `None` if it was not asked.
    pub stopped_after: Option<Duration>,
    /// True if the authority was lost before the command was gone, as noticed by this process or
    /// only by the guard.
    pub lost: bool,
    /// True if the command was killed while the authority lasted.
    pub killed: bool,
}

impl SupervisedEnd {
    /// Returns true if the command exited by itself, or only its guard was lost.
    pub fn by_itself(&self) -> bool {
        self.exited || self.stopped_after.is_none() && !self.lost
    }

    /// Returns true if the command exited with 0, but a process that it left was stopped.
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

    /// Returns true after [`SupervisedCommand::lose`].
    pub fn is_lost(&self) -> bool {
        self.workload.desired().lost
    }

    /// Adds everything that is newer in `desired`.
    pub fn apply(&mut self, desired: DesiredState) {
        self.update(|before| before.merged(desired));
    }

    /// Moves the deadline after a renewal. A lost authority does not return.
    pub fn extend(&mut self, terms: Terms) {
        self.update(|desired| desired.extended(terms));
    }

    /// Asks the command to stop within the grace, which counts from the first request. Meanwhile
    /// the authority lasts.
    pub fn stop(&mut self) {
        let stop = self.stopping.requested_now();
        self.update(|desired| desired.stopped(stop));
    }

    /// Asks the command to stop because the authority is lost. The command is gone at `kill_at` at
    /// the latest.
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
                () = at(stuck_at) => {
                    // A process that was frozen may have the report of the guard still unread.
                    match tokio::time::timeout(UNREAD_MAX, self.workload.changed()).await {
                        Ok(progress) => progress,
                        Err(_) => {
                            self.stuck = true;
                            return CommandEvent::Stuck;
                        }
                    }
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
                CommandProgress::Ending { by_us: false, .. } if self.stopped_at.is_none() => {
                    self.leftovers_stopped_at
                        .get_or_insert_with(clock::boot_now);
                    if std::mem::take(&mut self.lingers) {
                        self.report_leftovers();
                    }
                    return CommandEvent::Exited;
                }
                CommandProgress::Gone(ended) => {
                    let now = clock::boot_now();
                    let lingered = std::mem::take(&mut self.lingers);
                    // A process that was frozen past the deadline has not noticed the loss.
                    self.cut_off |= lingered && self.is_expired(now);
                    // The guard's report that their time is over may be unread.
                    if lingered && !ended.lingered && !self.cut_off && self.stopped_at.is_none() {
                        self.report_leftovers();
                    }
                    return CommandEvent::Gone(self.finished(ended));
                }
                CommandProgress::Starting | CommandProgress::Ending { .. } => {}
            }
        }
    }

    /// Returns when the command counts as stuck, unless it is gone before: `loss_grace` and
    /// [`CONFIRMED_WITHIN`] after SIGKILL. Processes that it left get SIGKILL after a grace of
    /// their own.
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

    /// Reports that descendants of the command did not end by themselves in time.
    fn report_leftovers(&self) {
        let linger = humantime::format_duration(self.stopping.linger);
        warn!(%linger, "the command exited, but left processes that did not end within workload.linger; stopping them");
    }

    fn is_expired(&self, now: BootTime) -> bool {
        self.terms().valid_until <= now
    }

    fn finished(&self, ended: Termination) -> SupervisedEnd {
        let now = clock::boot_now();
        // A process that was frozen past the deadline may receive the end of the command before it
        // notices the loss. If only the guard was lost, the authority may last.
        let expired = self.is_expired(now);
        let by_guard = ended.by_us && (expired || !ended.guard_lost) || self.cut_off;
        let unnoticed = self.stopped_at.is_none() && by_guard;
        let exited = self.exited && !self.cut_off;
        SupervisedEnd {
            ended,
            exited,
            cut_off: self.cut_off,
            leftovers_stopped: !ended.by_us && !ended.lingered,
            stopped_after: (self.stopped_at)
                .filter(|_| !exited)
                .map(|at| now.since(at)),
            lost: self.is_lost() || unnoticed,
            killed: self.killed,
        }
    }
}

/// Waits until an instant; indefinitely without one.
async fn at(instant: Option<BootTime>) {
    match instant {
        Some(at) => tokio::time::sleep(at.since(clock::boot_now())).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
