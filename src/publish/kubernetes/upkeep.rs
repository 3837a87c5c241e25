//! What to write to the label, and when: pure, so that time can be told by tests.
//!
//! Level-triggered: what counts is what the label should say now. Nothing is
//! queued, and a write whose outcome is not known is followed by others until
//! it can no longer land.

use std::time::Duration;

use super::api::{Remedy, Trouble};
use super::retry::pause;
use crate::election::{BootTime, Status};

/// After this long without an answer a write is given up.
pub(super) const REQUEST_TIME_MAX: Duration = Duration::from_secs(5);

/// A write that says what is wrong by now has this long, from its send, to be
/// answered before it is given up for the right one. A healthy API server
/// takes 3 ms, so two writes rarely race; and with it a demotion behind a
/// hanging promotion is still sent within the 250 ms that a step-down waits.
pub(super) const GIVE_WAY_AFTER: Duration = Duration::from_millis(100);

/// How long after a write was given up it is taken to be able to land: the API
/// server ends a request after 60 s.
pub(super) const LANDS_WITHIN: Duration = Duration::from_secs(70);

/// From write to write while one that was given up could still land.
pub(super) const SETTLING_INTERVAL: Duration = Duration::from_secs(5);

/// What a label says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Label {
    /// The pod's candidate leads.
    Leader,
    /// It does not, whatever else it does.
    Follower,
}

impl Label {
    /// The label's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Follower => "follower",
        }
    }

    /// What a label should say at `now`.
    pub fn wanted(status: &Status, now: BootTime) -> Self {
        if status.leads_at(now) {
            Self::Leader
        } else {
            Self::Follower
        }
    }
}

/// What is known of the pod's label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// Nothing was acknowledged, or a write that says something else is open.
    Unknown,
    /// The last write was acknowledged and says this.
    Says(Label),
    /// The pod is gone, and its label with it.
    NoPod,
}

impl Shown {
    /// Whether a Service may still take this pod for the leader's.
    pub fn may_say_leader(self) -> bool {
        match self {
            Self::Unknown | Self::Says(Label::Leader) => true,
            Self::Says(Label::Follower) | Self::NoPod => false,
        }
    }
}

/// What is to be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Write this. No other write is under way.
    Write(Label),
    /// Give up the write that is under way and close its connection.
    GiveUp,
    /// Nothing before this instant.
    Wait(BootTime),
}

/// One label's writes.
#[derive(Debug)]
pub(super) struct Upkeep {
    repair_interval: Duration,
    shown: Shown,
    /// When the last acknowledged write was sent.
    written_at: BootTime,
    in_flight: Option<Write>,
    /// Until when a write that was given up may land.
    unsettled_until: Option<BootTime>,
    retry: Option<Retry>,
    /// Whether `follower` was not yet sent since the label last was to say
    /// leader. That write is waited for, so it never waits for a pause.
    demotion_owed: bool,
    failures: u32,
}

#[derive(Debug, Clone, Copy)]
struct Write {
    label: Label,
    sent: BootTime,
}

#[derive(Debug, Clone, Copy)]
struct Retry {
    at: BootTime,
    /// What failed; another label is worth an attempt at once.
    label: Label,
    /// Whether the API server asked for the pause: it holds for every write
    /// but the first of a demotion.
    asked_for: bool,
}

impl Upkeep {
    pub(super) fn new(repair_interval: Duration) -> Self {
        Self {
            repair_interval,
            shown: Shown::Unknown,
            written_at: BootTime::default(),
            in_flight: None,
            unsettled_until: None,
            retry: None,
            demotion_owed: false,
            failures: 0,
        }
    }

    pub(super) fn shown(&self) -> Shown {
        self.shown
    }

    pub(super) fn step(&mut self, wanted: Label, now: BootTime) -> Step {
        self.demotion_owed |= wanted == Label::Leader;
        let (at, then) = match self.in_flight {
            Some(Write { label, sent }) if label == wanted => {
                (sent + REQUEST_TIME_MAX, Step::GiveUp)
            }
            Some(Write { sent, .. }) => (sent + GIVE_WAY_AFTER, Step::GiveUp),
            None => (self.due(wanted), Step::Write(wanted)),
        };
        if at <= now { then } else { Step::Wait(at) }
    }

    /// When to write `wanted`, with no write under way.
    fn due(&self, wanted: Label) -> BootTime {
        let demotes = wanted == Label::Follower && self.demotion_owed;
        match self.retry {
            // One attempt whatever was asked for: the step-down waits for it,
            // and the process may end after it.
            Some(_) if demotes => return BootTime::default(),
            Some(retry) if retry.asked_for || retry.label == wanted => return retry.at,
            Some(_) | None => {}
        }
        if self.shown != Shown::Says(wanted) {
            return BootTime::default();
        }
        let settled = self
            .unsettled_until
            .is_none_or(|until| until <= self.written_at);
        let interval = if settled {
            self.repair_interval
        } else {
            self.repair_interval.min(SETTLING_INTERVAL)
        };
        self.written_at + interval
    }

    /// `label` was sent.
    pub(super) fn sent(&mut self, label: Label, now: BootTime) {
        self.in_flight = Some(Write { label, sent: now });
        self.demotion_owed = label == Label::Leader;
        if self.shown != Shown::Says(label) {
            self.shown = Shown::Unknown;
        }
    }

    /// The write under way was acknowledged.
    pub(super) fn acknowledged(&mut self) {
        if let Some(Write { label, sent }) = self.in_flight.take() {
            self.shown = Shown::Says(label);
            self.written_at = sent;
            self.retry = None;
            self.failures = 0;
        }
    }

    /// The write under way failed. `random` spreads the attempts of many pods
    /// that lost the same API server.
    pub(super) fn failed(&mut self, trouble: &Trouble, now: BootTime, random: u8) {
        let Some(Write { label, .. }) = self.in_flight.take() else {
            return;
        };
        if trouble.may_land {
            self.unsettled_until = Some(now + LANDS_WITHIN);
        }
        self.shown = match trouble.remedy {
            Remedy::NewPod => Shown::NoPod,
            Remedy::Again | Remedy::After(_) | Remedy::Person => Shown::Unknown,
        };
        self.failures = self.failures.saturating_add(1);
        let wait = pause(trouble.remedy, self.failures, random);
        self.retry = Some(Retry {
            at: now + wait.unwrap_or(self.repair_interval),
            label,
            asked_for: matches!(trouble.remedy, Remedy::After(_)),
        });
    }
}

#[cfg(test)]
mod tests;
