//! The task that maintains the label of this pod. At most one write is in flight.

use std::future::pending;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntGauge, Opts};
use tokio::sync::watch;

use super::api::ApiError;
use super::error_log::RequestErrorLog;
use super::reconciler::{Label, LabelState, LabelStep, Reconciler};
use super::request::Requests;
use leasehold_clock::{BootTimer, boot_now};
use leasehold_core::election::{BootTime, Randomness, ResourceName, Status};
use leasehold_metrics::Metrics;
use leasehold_mongodb::randomness::KernelRandomness;
use leasehold_status::Surface;

pub(super) struct Labels {
    requests: Arc<Requests>,
    status: watch::Receiver<Status>,
    state: watch::Sender<LabelState>,
    timer: BootTimer,
    reconciler: Reconciler,
    errors: RequestErrorLog,
}

type Answer = Pin<Box<dyn Future<Output = Result<Bytes, ApiError>> + Send>>;

impl Labels {
    pub(super) fn new(
        requests: Arc<Requests>,
        status: watch::Receiver<Status>,
        metrics: Metrics,
        repair_interval: Duration,
    ) -> io::Result<(Self, watch::Receiver<LabelState>)> {
        let reconciler = Reconciler::new(repair_interval);
        let (state, receiver) = watch::channel(reconciler.state());
        let subject = format!("label {} of pod {}", requests.label_key, requests.pod);
        let right = "patch pods/status";
        let errors = RequestErrorLog::new(Surface::Label, subject, right, &requests.api, metrics);
        let labels = Self {
            requests,
            status,
            state,
            timer: BootTimer::new()?,
            reconciler,
            errors,
        };
        Ok((labels, receiver))
    }

    pub(super) async fn run(mut self) -> io::Result<()> {
        let mut write: Option<Answer> = None;
        // False once the candidate has ended, even if its label still needs a write.
        let mut candidate_runs = true;
        loop {
            let now = boot_now();
            let status = self.status.borrow_and_update().clone();
            let wanted = Label::wanted(&status, now);
            let wake = match self.reconciler.step(wanted, now) {
                LabelStep::Write(label) => {
                    write = Some(self.write(label, now));
                    continue;
                }
                LabelStep::GiveUp => {
                    write = None;
                    self.failed(&ApiError::NO_ANSWER);
                    continue;
                }
                LabelStep::Wait(at) => at,
            };
            self.timer.arm(Some(wake.min(deadline(&status, now))))?;
            let answered = async {
                match &mut write {
                    Some(answer) => answer.await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                fired = self.timer.fired() => fired?,
                changed = self.status.changed(), if candidate_runs => {
                    candidate_runs = changed.is_ok();
                }
                answer = answered => {
                    write = None;
                    match answer {
                        Ok(_) => self.acknowledged(),
                        Err(error) => self.failed(&error),
                    }
                }
            }
        }
    }

    fn write(&mut self, label: Label, now: BootTime) -> Answer {
        self.reconciler.sent(label, now);
        self.publish();
        let request = self.requests.label(label);
        let requests = Arc::clone(&self.requests);
        Box::pin(async move { requests.api.send(request).await })
    }

    fn acknowledged(&mut self) {
        self.reconciler.acknowledged();
        // Publish first, because a step-down waits for the state, and logging may be slow.
        self.publish();
        self.errors.over();
    }

    fn failed(&mut self, error: &ApiError) {
        self.reconciler.failed(error, boot_now(), random());
        // Publish first, so that no scrape counts this failure and still reports the label in sync.
        self.publish();
        self.errors.failed(error, boot_now());
    }

    fn publish(&self) {
        let state = self.reconciler.state();
        self.state
            .send_if_modified(|published| std::mem::replace(published, state) != state);
    }
}

fn deadline(status: &Status, now: BootTime) -> BootTime {
    let ahead = status.authority.filter(|a| a.valid_until > now);
    ahead.map_or(BootTime::from_nanos(u64::MAX), |a| a.valid_until)
}

pub(super) fn random() -> u8 {
    KernelRandomness.bits().to_be_bytes()[0]
}

/// The gauge `leasehold_label_in_sync`, computed at each scrape. Absent if labels are disabled.
#[derive(Debug)]
pub struct LabelInSync {
    status: watch::Receiver<Status>,
    state: watch::Receiver<LabelState>,
    gauge: IntGauge,
}

impl LabelInSync {
    /// Creates the gauge for the label of one lease.
    pub fn new(
        lease: &ResourceName,
        status: watch::Receiver<Status>,
        state: watch::Receiver<LabelState>,
    ) -> Result<Self, prometheus::Error> {
        let opts = Opts::new(
            "leasehold_label_in_sync",
            "1 if the last write of the pod's label was acknowledged and the label is correct at the time of the scrape, else 0; absent if labels are off.",
        );
        let gauge = IntGauge::with_opts(opts.const_label("lease", lease.as_str()))?;
        Ok(Self {
            status,
            state,
            gauge,
        })
    }
}

impl Collector for LabelInSync {
    fn desc(&self) -> Vec<&Desc> {
        self.gauge.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let wanted = Label::wanted(&self.status.borrow(), boot_now());
        // The label task drops the sender when it ends.
        let kept = self.state.has_changed().is_ok();
        let in_sync = kept && *self.state.borrow() == LabelState::Acknowledged(wanted);
        self.gauge.set(i64::from(in_sync));
        self.gauge.collect()
    }
}
