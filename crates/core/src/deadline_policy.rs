//! The deadline policy of a guard, without IO. It determines when CMD starts, gets a stop signal,
//! and is killed. The policy decides only when it gets [`PolicyInput::Time`], after the guard has
//! read all queued records. After a suspension, the last queued record may thus still extend the
//! deadline. Once the policy has found that a deadline passed, no later record extends it.

use std::time::Duration;

use crate::claim::earliest;
#[cfg(proof)]
use crate::election::mutation::planted;
use crate::election::{BootTime, OrderKind, Timings};

/// Deadlines of a workload under an authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Terms {
    /// End of authority, at which the workload is asked to stop.
    pub valid_until: BootTime,
    /// Instant when all remaining processes are killed, so that the workload is gone (I5).
    pub kill_at: BootTime,
}

impl Terms {
    /// Returns the deadlines for an authority that ends at `valid_until`.
    pub fn new(valid_until: BootTime, timings: &Timings) -> Self {
        Self {
            valid_until,
            kill_at: valid_until + timings.loss_grace(),
        }
    }

    /// Returns deadlines without a grace period, as used for timeouts and provisional authority.
    pub fn without_grace(valid_until: BootTime) -> Self {
        Self {
            valid_until,
            kill_at: valid_until,
        }
    }

    /// Returns the time of the SIGKILL after a loss at `now`: at most one grace period later.
    pub fn kill_at_after_loss(&self, now: BootTime, timings: &Timings) -> BootTime {
        self.kill_at.min(now + timings.loss_grace())
    }
}

/// A graceful stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Stop {
    /// The signal that asks CMD to stop.
    pub signal: i32,
    /// End of the grace period. CMD is killed earlier if its [`Terms::kill_at`] is earlier.
    pub kill_at: BootTime,
}

/// Complete desired state of a workload. Once set, a stop, a loss or a kill is never revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DesiredState {
    /// Deadlines of the workload.
    pub terms: Terms,
    /// The stop, if one was requested or authority was lost.
    pub stop: Option<Stop>,
    /// True if the workload must be killed now.
    pub kill: bool,
    /// True after a loss of authority. The guard does not receive this flag, only the stop.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub lost: bool,
}

impl DesiredState {
    /// Returns the state of a workload that runs with these deadlines.
    pub fn run(terms: Terms) -> Self {
        Self {
            terms,
            stop: None,
            kill: false,
            lost: false,
        }
    }

    /// Returns the state after an order. A voluntary step-down applies `graceful`; a loss uses only
    /// the signal of `graceful`.
    #[must_use]
    pub fn ordered(self, kind: OrderKind, graceful: Stop) -> Self {
        match kind {
            OrderKind::Start(terms) | OrderKind::Extend(terms) => self.extended(terms),
            OrderKind::Stop => self.stopped(graceful),
            OrderKind::Lost { kill_at } => self.lost(Stop {
                kill_at,
                ..graceful
            }),
        }
    }

    /// Returns the state after a renewal.
    #[must_use]
    pub fn extended(self, terms: Terms) -> Self {
        let terms = if self.lost { self.terms } else { terms };
        Self { terms, ..self }
    }

    /// Returns the state with a stop. A second stop never gives the workload more time.
    #[must_use]
    pub fn stopped(self, stop: Stop) -> Self {
        let kill_at = (self.stop).map_or(stop.kill_at, |before| before.kill_at.min(stop.kill_at));
        Self {
            stop: Some(Stop { kill_at, ..stop }),
            ..self
        }
    }

    /// Returns the state after a loss of authority.
    #[must_use]
    pub fn lost(self, stop: Stop) -> Self {
        Self {
            lost: true,
            ..self.stopped(stop)
        }
    }

    /// Returns the state with a kill.
    #[must_use]
    pub fn killed(self) -> Self {
        Self { kill: true, ..self }
    }

    /// Returns this state merged with a newer state.
    #[must_use]
    pub fn merged(self, newer: Self) -> Self {
        let extended = self.extended(newer.terms);
        let stopped = newer.stop.map_or(extended, |stop| extended.stopped(stop));
        Self {
            kill: self.kill || newer.kill,
            lost: self.lost || newer.lost,
            ..stopped
        }
    }

    /// Returns true if the workload has not been asked to end.
    pub fn runs(&self) -> bool {
        self.stop.is_none() && !self.kill
    }

    /// Returns the latest time of the SIGKILL for all remaining processes.
    pub fn kill_at(&self) -> BootTime {
        let kill_at = self.terms.kill_at;
        self.stop.map_or(kill_at, |stop| stop.kill_at.min(kill_at))
    }
}

/// Recipients of the stop signal. SIGKILL always goes to all processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum StopScope {
    /// CMD and its descendants.
    #[default]
    Group,
    /// CMD's first process, which stops its descendants itself.
    Main,
}

/// Time limits of descendants that outlive CMD's first process, unless CMD was asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Leftovers {
    /// Time that descendants have to end by themselves.
    pub linger: Duration,
    /// Time from the stop signal to SIGKILL.
    pub grace: Duration,
}

/// The options of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PolicyOptions {
    /// The deadlines at the start.
    pub terms: Terms,
    /// The signal that CMD gets at its deadline, or after its daemon has exited.
    pub stop_signal: i32,
    /// Recipients of the stop signal.
    #[cfg_attr(feature = "serde", serde(default))]
    pub stop_scope: StopScope,
    /// Time limits of descendants that outlive CMD's first process.
    pub leftovers: Leftovers,
}

impl PolicyOptions {
    /// Returns options with the grace period of `terms` and no time for descendants to linger.
    pub fn new(terms: Terms, stop_signal: i32) -> Self {
        Self {
            terms,
            stop_signal,
            stop_scope: StopScope::Group,
            leftovers: Leftovers {
                linger: Duration::ZERO,
                grace: terms.kill_at.since(terms.valid_until),
            },
        }
    }
}

/// An input of the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum PolicyInput {
    /// A new desired state from the daemon.
    Order(DesiredState),
    /// The daemon has exited.
    Closed,
    /// The process that was started as CMD has exited; descendants may remain.
    LeaderEnded,
    /// CMD and all its descendants have exited, or CMD could not be started.
    Gone,
    /// The current time. The guard has read everything that arrived by this time.
    Time,
}

/// An action for the guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Action {
    /// Start CMD.
    Start,
    /// Do not start CMD, because it has no authority or is no longer wanted.
    Refuse,
    /// Send this stop signal to CMD and its descendants.
    Signal(i32),
    /// Send this stop signal to CMD alone.
    SignalMain(i32),
    /// Kill CMD and its descendants, repeatedly until all have ended.
    Kill,
}

/// The deadline policy for one CMD under one claim.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DeadlinePolicy {
    desired: DesiredState,
    options: PolicyOptions,
    phase: PolicyPhase,
    closed: bool,
    expired: bool,
    /// Instant at which descendants are asked to stop after CMD's first process has exited by
    /// itself.
    left_behind_at: Option<BootTime>,
    signalled: bool,
    descendants_unsignalled: bool,
    killed: bool,
    action: Option<Action>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum PolicyPhase {
    New,
    Running,
    LeaderEnded,
    Done,
}

impl DeadlinePolicy {
    /// Creates the policy.
    pub fn new(options: PolicyOptions) -> Self {
        Self {
            desired: DesiredState::run(options.terms),
            options,
            phase: PolicyPhase::New,
            closed: false,
            expired: false,
            left_behind_at: None,
            signalled: false,
            descendants_unsignalled: false,
            killed: false,
            action: None,
        }
    }

    /// Records an input. Decides only when the input is [`PolicyInput::Time`].
    pub fn handle(&mut self, now: BootTime, input: PolicyInput) {
        match input {
            PolicyInput::Order(desired) => self.accept(desired),
            PolicyInput::Closed => self.closed = true,
            PolicyInput::LeaderEnded => {
                if self.phase == PolicyPhase::Running {
                    self.phase = PolicyPhase::LeaderEnded;
                    let left_behind_at = now + self.options.leftovers.linger;
                    self.left_behind_at = (!self.signalled).then_some(left_behind_at);
                }
            }
            PolicyInput::Gone => self.phase = PolicyPhase::Done,
            PolicyInput::Time => self.judge(now),
        }
    }

    /// Returns the action to take now, if any. Call it after each [`PolicyInput::Time`].
    pub fn next_action(&mut self) -> Option<Action> {
        self.action.take()
    }

    /// Returns the latest time at which to pass the next [`PolicyInput::Time`].
    pub fn next_wakeup(&self) -> Option<BootTime> {
        match self.phase {
            PolicyPhase::Done => None,
            PolicyPhase::New => Some(BootTime::default()),
            PolicyPhase::Running | PolicyPhase::LeaderEnded => {
                let expiry = (!self.expired).then_some(self.desired.terms.valid_until);
                let kill = (!self.killed).then(|| self.kill_at());
                let left_behind = self.left_behind_at.filter(|_| !self.stop_requested());
                earliest([expiry, kill, left_behind])
            }
        }
    }

    /// Returns true if the policy has ordered a stop signal or SIGKILL.
    pub fn stop_requested(&self) -> bool {
        self.signalled || self.killed
    }

    /// Returns true after CMD's exit if descendants may linger and none of them was asked to stop.
    pub fn lingers(&self) -> bool {
        let leader_ended = matches!(self.phase, PolicyPhase::LeaderEnded | PolicyPhase::Done);
        leader_ended && self.left_behind_at.is_some() && !self.stop_requested()
    }

    /// Returns true if the policy has ordered SIGKILL.
    pub fn killed(&self) -> bool {
        self.killed
    }

    /// Returns the newest known end of authority.
    pub fn valid_until(&self) -> BootTime {
        self.desired.terms.valid_until
    }

    /// Returns true if the deadline has passed. No later order then extends this claim.
    pub fn expired(&self) -> bool {
        self.expired
    }

    fn accept(&mut self, newer: DesiredState) {
        let before = self.desired.terms;
        self.desired = self.desired.merged(newer);
        if self.expired && !planted!(DeadlineRevived) {
            self.desired.terms = before;
        }
    }

    fn judge(&mut self, now: BootTime) {
        if now >= self.desired.terms.valid_until {
            self.expired = true;
        }
        let forbidden = self.expired && !planted!(StartedAfterDeadline);
        let is_left_behind = self.left_behind_at.is_some_and(|at| now >= at);
        match self.phase {
            PolicyPhase::Done => {}
            PolicyPhase::New if forbidden || self.unwanted() => {
                self.phase = PolicyPhase::Done;
                self.action = Some(Action::Refuse);
            }
            PolicyPhase::New => {
                self.phase = PolicyPhase::Running;
                self.action = Some(Action::Start);
            }
            PolicyPhase::LeaderEnded if planted!(StartedAgain) && !self.must_end() => {
                self.phase = PolicyPhase::Running;
                self.action = Some(Action::Start);
            }
            PolicyPhase::Running | PolicyPhase::LeaderEnded => {
                if self.desired.kill || now >= self.kill_at() {
                    if !self.killed {
                        self.killed = true;
                        self.action = Some(Action::Kill);
                    }
                } else if !self.signalled && (self.must_end() || is_left_behind) {
                    self.signalled = true;
                    self.action = Some(self.first_signal());
                } else if self.descendants_unsignalled && self.phase == PolicyPhase::LeaderEnded {
                    // CMD's first process has exited without stopping its descendants.
                    self.descendants_unsignalled = false;
                    self.action = Some(Action::Signal(self.signal()));
                }
            }
        }
    }

    fn unwanted(&self) -> bool {
        self.closed || !self.desired.runs()
    }

    fn must_end(&self) -> bool {
        self.expired || self.unwanted()
    }

    fn first_signal(&mut self) -> Action {
        let signal = self.signal();
        if self.options.stop_scope == StopScope::Main && self.phase == PolicyPhase::Running {
            self.descendants_unsignalled = true;
            Action::SignalMain(signal)
        } else {
            Action::Signal(signal)
        }
    }

    fn signal(&self) -> i32 {
        let stop = self.desired.stop;
        stop.map_or(self.options.stop_signal, |stop| stop.signal)
    }

    fn kill_at(&self) -> BootTime {
        let kill_at = self.desired.kill_at();
        let grace = self.options.leftovers.grace;
        self.left_behind_at
            .map_or(kill_at, |at| kill_at.min(at + grace))
    }
}

#[cfg(all(test, not(proof)))]
mod tests;
