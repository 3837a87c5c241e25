//! Forwards the candidate's events to the status files, the pod, the metrics and the log.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tracing::info;

use super::idle_timers::IdleTimers;
use super::pod::PodPublisher;
use super::reporter::Reporter;
use super::store_errors::StoreErrors;
use crate::calls::AnsweredCall;
use crate::clock;
use crate::election::{
    BootTime, Claim, HolderView, Notice, Order, OrderKind, ResourceName, Status, Token, Transition,
    Watch,
};
use crate::elector::Surfaces;
use crate::publish::file::StatusFileHandle;
use crate::publish::metrics::Metrics;
use crate::publish::render::renders_equal;
use crate::store::StoreEvent;
use crate::supervisor::Orders;

pub(super) struct DaemonSurfaces {
    /// Notified if the first document that is read is a lock. `None` after the first change of
    /// role.
    pub(super) other_kind: Option<Arc<Notify>>,
    pub(super) files: Arc<StatusFileHandle>,
    pub(super) pod: Option<PodPublisher>,
    pub(super) orders: Option<Orders>,
    pub(super) metrics: Metrics,
    pub(super) store_errors: StoreErrors,
    pub(super) reporter: Reporter,
    pub(super) idle_timers: Arc<IdleTimers>,
}

impl Surfaces for DaemonSurfaces {
    fn flush(&mut self) -> oneshot::Receiver<bool> {
        self.files.flush()
    }

    fn label_demoted(&mut self) -> Option<oneshot::Receiver<()>> {
        let demoted = self.pod.clone()?.demoted();
        let (answer, settled) = oneshot::channel();
        tokio::spawn(async move {
            demoted.await;
            // The event loop may have stopped waiting.
            let _ = answer.send(());
        });
        Some(settled)
    }

    fn workload(&mut self, order: Order) {
        // Each renewal sends an extension, which does not count as a change.
        if !matches!(order.kind, OrderKind::Extend(_)) {
            self.idle_timers.disturbed();
        }
        if let Some(orders) = &self.orders {
            orders.give(order);
        }
    }

    fn remember(&mut self, claim: Option<Claim>, token: Token, lease_longest: Duration) {
        self.files.record(claim, token, Some(lease_longest));
    }

    fn transition(&mut self, transition: &Transition) {
        // The thread writes the new role immediately, even if the main loop is busy.
        self.files.wake();
        self.idle_timers.disturbed();
        self.other_kind = None;
        self.metrics.transition(transition.to, transition.reason);
        let failed_write = self.store_errors.failed_write();
        self.reporter.transition(transition, failed_write);
        if let Some(pod) = &self.pod {
            pod.transition(transition);
        }
    }

    fn notice(&mut self, notice: &Notice) {
        self.idle_timers.disturbed();
        self.reporter.notice(notice);
        if let (Notice::Foreign { why }, Some(other_kind)) = (notice, &self.other_kind)
            && why.is_of_other_kind()
        {
            other_kind.notify_one();
        }
        if let Some(pod) = &self.pod {
            pod.notice(notice);
        }
    }

    fn calls_in_flight(&mut self, number: usize) {
        self.idle_timers.calls(number);
    }

    fn answered(&mut self, answered: &AnsweredCall) {
        if answered.failure.is_some() {
            self.idle_timers.disturbed();
        }
        let now = clock::boot_now();
        // A call with a late answer was already counted as unknown at its timeout.
        if !answered.late {
            let operation = answered.operation;
            self.metrics
                .store_operation(operation, answered.outcome, answered.elapsed);
            if self.store_errors.answered(answered, now) {
                self.files.wake();
            }
            if operation == "renew"
                && let (Some(pod), Some(failure)) = (&self.pod, &answered.failure)
            {
                pod.renewal_failed(&failure.summary());
            }
        }
        self.reporter.answered(answered, &self.store_errors, now);
    }

    fn store_event(&mut self, event: &StoreEvent) {
        let follows = match event {
            StoreEvent::Watch(Watch::Opened | Watch::LateStreamOpened | Watch::HintsOpened) => {
                Some(true)
            }
            StoreEvent::WatchFailed(_) | StoreEvent::HintsFailed(_) => Some(false),
            _ => None,
        };
        if let Some(follows) = follows {
            self.idle_timers.follows(follows);
            self.metrics.watch_connected(follows);
        }
        self.reporter.store_event(event);
    }
}

/// Notifies the files and the log of a new status. The other receivers read the watch channel
/// themselves.
pub(super) struct StatusFollower {
    lease: ResourceName,
    files: Arc<StatusFileHandle>,
    /// Token of the holder that the first read showed. This holder may have exited before the read.
    recorded_token: Token,
    highest_leader_token: Token,
    last: Option<Status>,
    at_terminal: bool,
}

impl StatusFollower {
    pub(super) fn new(
        lease: ResourceName,
        files: Arc<StatusFileHandle>,
        at_terminal: bool,
    ) -> Self {
        Self {
            lease,
            files,
            recorded_token: Token::ZERO,
            highest_leader_token: Token::ZERO,
            last: None,
            at_terminal,
        }
    }

    pub(super) fn changed(&mut self, status: &Status, now: BootTime) {
        if let Some(holder) = &status.holder {
            let known = match holder.unconfirmed {
                true => &mut self.recorded_token,
                false => &mut self.highest_leader_token,
            };
            if holder.token > *known {
                *known = holder.token;
                if status.authority.is_none() {
                    self.log(holder);
                }
            }
        }
        // A follower's status changes with each renewal of the holder, but the content of its files
        // does not.
        let before = self.last.replace(status.clone());
        if before.is_none_or(|before| !renders_equal(&before.at(now), &status.at(now))) {
            self.files.wake();
        }
    }

    fn log(&self, holder: &HolderView) {
        let what = match holder.unconfirmed {
            true => "recorded holder",
            false => "new leader",
        };
        let (holder, token) = (&holder.identity, holder.token.get());
        match self.at_terminal {
            true => info!(lease = %self.lease, "{what}: {holder} (token {token})"),
            false => info!(lease = %self.lease, %holder, token, "{what}"),
        }
    }
}
