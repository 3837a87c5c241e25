//! A command under an authority that renews, for `run -- CMD` and `lock -- CMD`.
//!
//! Safety depends on the order of the steps:
//!
//! 1. [`Standby::prepare`] starts the guard. It needs no authority.
//! 2. [`Standby::start`] arms the guard with the deadlines of the authority. The command exists only
//!    after that, and only if the deadline has not passed at its exec.
//! 3. [`Supervised::run`] moves the deadline with each acknowledged renewal, but never after a loss.
//!    It ends the command as its [`Director`] decides: the stop signal, then SIGKILL by the guard.
//! 4. [`Supervised::run`] returns when the command and all its descendants are gone. Only then may
//!    the caller release the authority.

use std::ffi::OsString;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::clock;
use crate::election::BootTime;
use crate::workload::claim_share::ClaimShare;
use crate::workload::{Command, Ended, Progress, StandbyGuard, Terms, Workload};

/// A command that does not run, and the guard that waits to start it, if there is one.
pub(crate) struct Standby {
    command: Command,
    stopping: Stopping,
    guard: Option<StandbyGuard>,
}

/// How a command is asked to stop.
#[derive(Debug, Clone, Copy)]
pub struct Stopping {
    /// Signal that asks the command to stop.
    pub signal: i32,
    /// Time that the command has to stop on request.
    pub grace: Duration,
}

/// Resources that a guard keeps while its command runs.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// The lock of the claim; without it, no next daemon has to wait for the command.
    pub(crate) claim: Option<ClaimShare>,
    /// A descriptor for descendants of the command, which read it through /proc.
    pub(crate) descriptor: Option<OwnedFd>,
}

impl Standby {
    pub(crate) fn new(command: Command, stopping: Stopping) -> Self {
        Self {
            command: command.stop_signal(stopping.signal),
            stopping,
            guard: None,
        }
    }

    /// Returns true if a guard waits.
    pub(crate) fn is_prepared(&self) -> bool {
        self.guard.is_some()
    }

    /// Starts everything that needs no authority. A failed preparation is repeated by the next call
    /// or by the start.
    pub(crate) fn prepare(&mut self) {
        if self.guard.is_none() {
            self.guard = self.command.clone().prepare().ok();
        }
    }

    /// Starts the command under an authority, with the environment variables that are known only
    /// now.
    ///
    /// # Errors
    /// If nothing runs: see [`StandbyGuard::start`].
    pub(crate) fn start(
        &mut self,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        terms: Terms,
        kept: Kept,
    ) -> io::Result<Supervised> {
        let mut guard = match self.guard.take() {
            Some(guard) => guard,
            None => self.command.clone().prepare()?,
        };
        if let Some(descriptor) = kept.descriptor {
            guard = guard.keeping(descriptor);
        }
        let workload = guard.start(environment, terms, kept.claim)?;
        Ok(Supervised::new(workload, self.stopping, terms))
    }

    /// Ends a guard that still waits. PID 1 of a container may not reap orphans, so its end is
    /// awaited.
    pub(crate) async fn dismiss(self) {
        if let Some(guard) = self.guard {
            guard.dismiss().await;
        }
    }
}

/// A decision about a running command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Directive {
    /// The authority lasts, with these deadlines.
    Run(Terms),
    /// Stop within the grace, which counts from the first of these. The authority lasts meanwhile,
    /// with these deadlines.
    Stop(Terms),
    /// The authority is lost: stop, and be gone at `kill_at` at the latest.
    Lost { kill_at: BootTime },
    /// Kill immediately.
    Kill,
    /// Relay a signal.
    Relay(i32),
}

/// Decides about a running command.
pub(crate) trait Director: Send {
    /// Waits for the next decision. Must be cancel safe.
    fn next(&mut self) -> impl Future<Output = Directive> + Send;

    /// Learns that the command runs or is ending. `asked` is true once it was told to end.
    fn progressed(&mut self, _: Progress, _asked: bool) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// A running command.
pub(crate) struct Supervised {
    workload: Workload,
    stopping: Stopping,
    terms: Terms,
    /// Time at which the command was first told to end.
    asked_at: Option<BootTime>,
    /// End of the grace, once a stop was requested.
    grace_ends: Option<BootTime>,
    lost: bool,
    killed: bool,
}

/// How and why a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Finished {
    /// The end of the command and all its descendants.
    pub(crate) ended: Ended,
    /// Time that the command took to end after it was first told to; `None` if it was not.
    pub(crate) stopped_after: Option<Duration>,
    /// True if the authority was lost before the command was gone, as noticed by this process or
    /// only by the guard.
    pub(crate) lost: bool,
    /// True if the command was killed while the authority lasted.
    pub(crate) killed: bool,
}

impl Finished {
    /// Returns true if the command exited by itself, or only its guard was lost.
    pub(crate) fn by_itself(&self) -> bool {
        self.stopped_after.is_none() && !self.lost
    }
}

impl Supervised {
    pub(super) fn new(workload: Workload, stopping: Stopping, terms: Terms) -> Self {
        Self {
            workload,
            stopping,
            terms,
            asked_at: None,
            grace_ends: None,
            lost: false,
            killed: false,
        }
    }

    /// Supervises the command until it and all its descendants are gone.
    pub(crate) async fn run(mut self, director: &mut impl Director) -> Finished {
        loop {
            tokio::select! {
                // Decisions take precedence over events of the command.
                biased;
                directive = director.next() => self.apply(directive, clock::boot_now()),
                progress = self.workload.changed() => match progress {
                    Progress::Gone(ended) => return self.finished(ended, clock::boot_now()),
                    Progress::Starting | Progress::Running { .. } | Progress::Ending { .. } => {
                        director.progressed(progress, self.asked_at.is_some()).await;
                    }
                },
            }
        }
    }

    fn apply(&mut self, directive: Directive, now: BootTime) {
        let Stopping { signal, grace } = self.stopping;
        match directive {
            Directive::Run(terms) => return self.extend(terms),
            Directive::Relay(signal) => return self.workload.signal(signal),
            Directive::Stop(terms) => {
                let kill_at = *self.grace_ends.get_or_insert(now + grace);
                self.extend(terms);
                self.workload.stop(signal, kill_at);
            }
            Directive::Lost { kill_at } => {
                self.lost = true;
                self.workload.stop(signal, kill_at);
            }
            Directive::Kill => {
                self.killed |= !self.lost;
                self.workload.kill();
            }
        }
        self.asked_at.get_or_insert(now);
    }

    /// Moves the deadline after a renewal. A lost authority does not return.
    fn extend(&mut self, terms: Terms) {
        if !self.lost {
            self.terms = terms;
            self.workload.extend(terms);
        }
    }

    fn finished(&self, ended: Ended, now: BootTime) -> Finished {
        // A process that was frozen past the deadline may receive the end of the command before it
        // notices the loss. If only the guard was lost, the authority may last.
        let expired = self.terms.valid_until <= now;
        let unnoticed = self.asked_at.is_none() && ended.by_us && (expired || !ended.guard_lost);
        Finished {
            ended,
            stopped_after: self.asked_at.map(|at| now.since(at)),
            lost: self.lost || unnoticed,
            killed: self.killed,
        }
    }
}

#[cfg(test)]
mod tests;
