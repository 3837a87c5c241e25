//! Decides from the current status (level-triggered) when to write the label and what value to
//! write. After a write of unknown outcome, keeps rewriting the label until that write can no
//! longer take effect.

use std::time::Duration;

use super::api::{ApiError, ApiRetry};
use super::retry::pause;
use leasehold_core::election::{BootTime, Status};

pub(super) const REQUEST_TIME_MAX: Duration = Duration::from_secs(5);
/// Timeout for a write in flight whose value is outdated. A step-down waits 250 ms for the label,
/// so a demotion must soon replace a hanging promotion. A healthy API server takes 3 ms.
pub(super) const GIVE_WAY_AFTER: Duration = Duration::from_millis(100);
/// Maximum time until an abandoned write takes effect. The API server ends a request after 60 s.
pub(super) const LANDS_WITHIN: Duration = Duration::from_secs(70);
/// Interval between writes while an abandoned write may still take effect.
pub(super) const SETTLING_INTERVAL: Duration = Duration::from_secs(5);

/// The value of a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Label {
    /// The candidate leads.
    Leader,
    /// The candidate does not lead.
    Follower,
}

impl Label {
    /// Returns the label's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Follower => "follower",
        }
    }

    /// Returns the correct value at `now`.
    pub fn wanted(status: &Status, now: BootTime) -> Self {
        match status.leads_at(now) {
            true => Self::Leader,
            false => Self::Follower,
        }
    }
}

/// State of the pod's label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabelState {
    /// No write was acknowledged, or a write of a different value is in flight.
    Unknown,
    /// The last write was acknowledged. Contains the written value.
    Acknowledged(Label),
    /// The pod and its label no longer exist.
    NoPod,
}

impl LabelState {
    /// Returns true if a Service may still select this pod as the leader.
    pub fn may_say_leader(self) -> bool {
        !matches!(self, Self::Acknowledged(Label::Follower) | Self::NoPod)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LabelStep {
    /// Write this value. No other write is in flight.
    Write(Label),
    /// Abandon the write in flight and close its connection.
    GiveUp,
    Wait(BootTime),
}

#[derive(Debug)]
pub(super) struct Reconciler {
    repair_interval: Duration,
    state: LabelState,
    written_at: BootTime,
    in_flight: Option<Write>,
    unsettled_until: Option<BootTime>,
    retry: Option<Retry>,
    /// True from the start of leadership until `follower` is sent. This write ignores a pause that
    /// the API server requested, because a step-down waits for it.
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
    /// The value of the failed write. A different value is written immediately, unless the API
    /// server requested the pause.
    label: Label,
    /// True if the API server requested the pause. A requested pause applies to both values.
    asked_for: bool,
}

impl Reconciler {
    pub(super) fn new(repair_interval: Duration) -> Self {
        Self {
            repair_interval,
            state: LabelState::Unknown,
            written_at: BootTime::default(),
            in_flight: None,
            unsettled_until: None,
            retry: None,
            demotion_owed: false,
            failures: 0,
        }
    }

    pub(super) fn state(&self) -> LabelState {
        self.state
    }

    pub(super) fn step(&mut self, wanted: Label, now: BootTime) -> LabelStep {
        self.demotion_owed |= wanted == Label::Leader;
        let (at, then) = match self.in_flight {
            Some(write) if write.label == wanted => {
                (write.sent + REQUEST_TIME_MAX, LabelStep::GiveUp)
            }
            Some(write) => (write.sent + GIVE_WAY_AFTER, LabelStep::GiveUp),
            None => (self.due(wanted), LabelStep::Write(wanted)),
        };
        if at <= now { then } else { LabelStep::Wait(at) }
    }

    fn due(&self, wanted: Label) -> BootTime {
        let demotes = wanted == Label::Follower && self.demotion_owed;
        match self.retry {
            // Tries once despite a pause, because the process may exit after the step-down.
            Some(_) if demotes => return BootTime::default(),
            Some(retry) if retry.asked_for || retry.label == wanted => return retry.at,
            Some(_) | None => {}
        }
        if self.state != LabelState::Acknowledged(wanted) {
            return BootTime::default();
        }
        let until = self.unsettled_until;
        let interval = match until.is_none_or(|until| until <= self.written_at) {
            true => self.repair_interval,
            false => self.repair_interval.min(SETTLING_INTERVAL),
        };
        self.written_at + interval
    }

    pub(super) fn sent(&mut self, label: Label, now: BootTime) {
        self.in_flight = Some(Write { label, sent: now });
        self.demotion_owed = label == Label::Leader;
        if self.state != LabelState::Acknowledged(label) {
            self.state = LabelState::Unknown;
        }
    }

    pub(super) fn acknowledged(&mut self) {
        if let Some(Write { label, sent }) = self.in_flight.take() {
            self.state = LabelState::Acknowledged(label);
            self.written_at = sent;
            self.retry = None;
            self.failures = 0;
        }
    }

    /// `random` adds jitter, so that many pods do not retry together.
    pub(super) fn failed(&mut self, error: &ApiError, now: BootTime, random: u8) {
        let Some(Write { label, .. }) = self.in_flight.take() else {
            return;
        };
        if error.may_land {
            self.unsettled_until = Some(now + LANDS_WITHIN);
        }
        self.state = match error.retry {
            ApiRetry::NewPod => LabelState::NoPod,
            _ => LabelState::Unknown,
        };
        self.failures = self.failures.saturating_add(1);
        let wait = pause(error.retry, self.failures, random);
        self.retry = Some(Retry {
            at: now + wait.unwrap_or(self.repair_interval),
            label,
            asked_for: matches!(error.retry, ApiRetry::After(_)),
        });
    }
}

#[cfg(test)]
mod tests;
