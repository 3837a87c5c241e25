//! What a guard decides, without IO: told the time and what happened, it says
//! whether CMD starts, when it is asked to stop, and when it is killed.
//!
//! Nothing is decided but on [`Input::Time`], and everything that was sent is
//! read before: a guard that was suspended must not judge by the first record
//! of a queue whose last one extends the deadline. A deadline that passed is
//! final: nothing that is read after it brings it back.

use std::time::Duration;

use crate::election::BootTime;
#[cfg(test)]
use crate::election::mutation::planted;

/// Until when CMD may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Terms {
    /// The end of authority: CMD gets its stop signal.
    pub valid_until: BootTime,
    /// `valid_until + loss_grace`: what is left is killed.
    pub kill_at: BootTime,
}

/// A graceful stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stop {
    /// The signal that asks CMD to end.
    pub signal: i32,
    /// When patience ends. The deadline of the terms holds beside it.
    pub kill_at: BootTime,
}

/// All that the daemon wants, at this time. Each order is the whole of it, so
/// the newest is enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Order {
    /// Until when CMD may run.
    pub terms: Terms,
    /// CMD is to end.
    pub stop: Option<Stop>,
    /// CMD is to be killed now.
    pub kill: bool,
}

impl Order {
    /// With a stop. One that was asked for before keeps its time: leadership that
    /// is lost while CMD ends gives it no more than it had.
    #[must_use]
    pub fn stopped(self, stop: Stop) -> Self {
        let kill_at = (self.stop).map_or(stop.kill_at, |before| before.kill_at.min(stop.kill_at));
        Self {
            stop: Some(Stop { kill_at, ..stop }),
            ..self
        }
    }
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Input {
    /// The daemon wants this.
    Order(Order),
    /// The daemon is gone.
    Closed,
    /// The process that was started as CMD has ended; descendants may be left.
    LeaderEnded,
    /// CMD and all its descendants are gone, or CMD could not be started.
    Gone,
    /// Everything that could be read has been read.
    Time,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Start CMD.
    Start,
    /// Do not start CMD: there is no authority for it, or nobody wants it.
    Refuse,
    /// Ask CMD and its descendants to end.
    Signal(i32),
    /// Kill CMD and its descendants until they are gone.
    Kill,
}

/// The judgement over one CMD under one claim.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Judge {
    order: Order,
    stop_signal: i32,
    /// What descendants get that outlive their leader: `loss_grace`.
    linger: Duration,
    phase: Phase,
    closed: bool,
    expired: bool,
    /// Descendants that outlived a leader which nobody had asked to end.
    left_behind_at: Option<BootTime>,
    signalled: bool,
    killed: bool,
    action: Option<Action>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Phase {
    New,
    Running,
    LeaderEnded,
    Done,
}

impl Judge {
    /// `stop_signal` is what CMD gets when its time is up, or its daemon gone.
    pub fn new(terms: Terms, stop_signal: i32) -> Self {
        Self {
            order: Order {
                terms,
                stop: None,
                kill: false,
            },
            stop_signal,
            linger: terms.kill_at.since(terms.valid_until),
            phase: Phase::New,
            closed: false,
            expired: false,
            left_behind_at: None,
            signalled: false,
            killed: false,
            action: None,
        }
    }

    /// Takes notice; on [`Input::Time`] it judges.
    pub fn handle(&mut self, now: BootTime, input: Input) {
        match input {
            Input::Order(order) => {
                self.accept(order);
                if planted!(EachRecordJudged) {
                    self.judge(now);
                }
            }
            Input::Closed => self.closed = !planted!(ClosedPipeIgnored),
            Input::LeaderEnded => {
                if self.phase == Phase::Running {
                    self.phase = Phase::LeaderEnded;
                    self.left_behind_at = (!self.signalled).then_some(now);
                }
            }
            Input::Gone => self.phase = Phase::Done,
            Input::Time => self.judge(now),
        }
    }

    /// What is to be done now; to be asked after each [`Input::Time`].
    pub fn next_action(&mut self) -> Option<Action> {
        self.action.take()
    }

    /// When the next [`Input::Time`] is due at the latest.
    pub fn next_wakeup(&self) -> Option<BootTime> {
        match self.phase {
            Phase::Done => None,
            Phase::New => Some(BootTime::default()),
            Phase::Running | Phase::LeaderEnded => {
                let expiry = (!self.expired).then_some(self.order.terms.valid_until);
                let kill = (!self.killed).then(|| self.kill_at());
                expiry.into_iter().chain(kill).min()
            }
        }
    }

    /// Whether CMD was told to end, by a signal or by SIGKILL.
    pub fn told_to_end(&self) -> bool {
        self.signalled || self.killed
    }

    /// Whether CMD was told to die.
    pub fn killed(&self) -> bool {
        self.killed
    }

    /// The end of authority, as far as is known.
    pub fn valid_until(&self) -> BootTime {
        self.order.terms.valid_until
    }

    /// Whether the deadline has passed: this claim is over, whatever comes.
    pub fn expired(&self) -> bool {
        self.expired
    }

    fn accept(&mut self, order: Order) {
        let Order { terms, stop, kill } = order;
        if !self.expired || planted!(DeadlineRevived) {
            self.order.terms = terms;
        }
        // A stop is not taken back: CMD has heard of it.
        self.order.stop = stop.or(self.order.stop);
        self.order.kill |= kill;
    }

    fn judge(&mut self, now: BootTime) {
        if now >= self.order.terms.valid_until {
            self.expired = true;
        }
        match self.phase {
            Phase::Done => {}
            Phase::New if self.forbidden() || self.unwanted() => {
                self.phase = Phase::Done;
                self.action = Some(Action::Refuse);
            }
            Phase::New => {
                self.phase = Phase::Running;
                self.action = Some(Action::Start);
            }
            Phase::LeaderEnded if planted!(StartedAgain) && !self.must_end() => {
                self.phase = Phase::Running;
                self.action = Some(Action::Start);
            }
            Phase::Running | Phase::LeaderEnded => {
                if self.order.kill || now >= self.kill_at() {
                    if !self.killed {
                        self.killed = true;
                        self.action = Some(Action::Kill);
                    }
                } else if !self.signalled && (self.must_end() || self.left_behind_at.is_some()) {
                    self.signalled = true;
                    self.action = Some(Action::Signal(self.signal()));
                }
            }
        }
    }

    fn forbidden(&self) -> bool {
        self.expired && !planted!(StartedAfterDeadline)
    }

    fn unwanted(&self) -> bool {
        self.closed || self.order.stop.is_some() || self.order.kill
    }

    fn must_end(&self) -> bool {
        self.expired || self.unwanted()
    }

    fn signal(&self) -> i32 {
        self.order.stop.map_or(self.stop_signal, |stop| stop.signal)
    }

    fn kill_at(&self) -> BootTime {
        let stop = self.order.stop.map(|stop| stop.kill_at);
        let stop = stop.filter(|_| !planted!(StopWithoutKill));
        let left_behind = self.left_behind_at.map(|at| at + self.linger);
        let mut last = self.order.terms.kill_at;
        if planted!(LossWithoutKill) {
            last = last + Duration::from_secs(3600);
        }
        [stop, left_behind]
            .into_iter()
            .flatten()
            .fold(last, BootTime::min)
    }
}

#[cfg(test)]
mod tests;
