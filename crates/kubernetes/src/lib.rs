//! Publishes the candidate's state on its pod, as a label that a Service can select and as Events.
//! Mutual exclusion does not depend on the label. Maximum delay: see `docs/kubernetes.md`.

#![forbid(unsafe_code)]

mod access;
mod api;
mod error_log;
mod event;
mod examination;
mod labels;
mod queue;
mod reconciler;
mod reporter;
mod request;
mod retry;
mod stale_labels;

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{Id, JoinSet};

pub use self::access::{
    Access, CREDENTIALS_DIRECTORY, SERVICE_HOST, SERVICE_PORT, Unusable, access, pod,
};
pub use self::api::Api;
pub use self::examination::{Examiner, Refusal, Right, TokenUser};
pub use self::labels::LabelInSync;
pub use self::reconciler::{Label, LabelState};
pub use self::request::Pod;

use self::event::PodEvent;
use self::labels::Labels;
use self::queue::EventQueue;
use self::reporter::EventReporter;
use self::request::Requests;
use self::stale_labels::StaleLabels;
use leasehold_config::KubernetesConfig;
use leasehold_core::election::{Notice, ResourceName, Status, Transition};
use leasehold_metrics::Metrics;
use leasehold_status::render::Identification;

/// Interval at which the daemon writes its label again, because another client may have changed the
/// label.
pub const REPAIR_INTERVAL: Duration = Duration::from_secs(60);

/// The daemon's handle on the label and the Events. Clones share their state.
#[derive(Debug, Clone)]
pub struct Kubernetes {
    lease: ResourceName,
    state: watch::Receiver<LabelState>,
    events: Option<EventQueue>,
    label_wait: Duration,
}

/// The tasks behind a [`Kubernetes`]. The end of a task counts as a failure.
#[derive(Debug, Default)]
pub struct Tasks {
    running: JoinSet<io::Result<()>>,
    names: Vec<(Id, &'static str)>,
}

impl Kubernetes {
    /// Starts publishing, inside a tokio runtime. `repair_interval` is [`REPAIR_INTERVAL`] except
    /// in tests. Fails if the kernel cannot create a timer, or if two metrics collide.
    pub fn spawn(
        api: Api,
        pod: Pod,
        settings: &KubernetesConfig,
        repair_interval: Duration,
        who: &Identification,
        status: &watch::Receiver<Status>,
        metrics: &Metrics,
    ) -> io::Result<(Self, Tasks)> {
        let requests = Arc::new(Requests::new(api, pod, &settings.label_prefix, who));
        let (labels, state) = Labels::new(
            Arc::clone(&requests),
            status.clone(),
            metrics.clone(),
            repair_interval,
        )?;
        let in_sync = LabelInSync::new(&who.lease, status.clone(), state.clone())
            .and_then(|gauge| metrics.registry().register(Box::new(gauge)));
        in_sync.map_err(io::Error::other)?;
        let mut tasks = Tasks::default();
        tasks.spawn("label", labels.run());
        if settings.demote_others {
            let stale_labels =
                StaleLabels::new(Arc::clone(&requests), status.clone(), metrics.clone())?;
            tasks.spawn("labels of other pods", stale_labels.run());
        }
        let events = settings.events.then(|| {
            let (queue, reporter) = EventReporter::new(requests, metrics.clone());
            tasks.spawn("events", reporter.run());
            queue
        });
        let this = Self {
            lease: who.lease.clone(),
            state,
            events,
            label_wait: settings.label_wait,
        };
        Ok((this, tasks))
    }

    /// Reports a change of role. Never blocks.
    pub fn transition(&self, transition: &Transition) {
        self.report(|lease| PodEvent::of_transition(lease, transition));
    }

    /// Reports a notice. Never blocks.
    pub fn notice(&self, notice: &Notice) {
        self.report(|lease| PodEvent::of_notice(lease, notice));
    }

    /// Reports an unacknowledged renewal. Never blocks.
    pub fn renewal_failed(&self, why: &str) {
        self.report(|lease| Some(PodEvent::of_failed_renewal(lease, why)));
    }

    fn report(&self, event: impl FnOnce(&ResourceName) -> Option<PodEvent>) {
        if let Some(events) = &self.events
            && let Some(event) = event(&self.lease)
        {
            events.offer(event);
        }
    }

    /// Waits until the pod's label no longer says leader, but at most `label_wait`.
    pub fn demoted(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut state = self.state.clone();
        let label_wait = self.label_wait;
        async move {
            // `wait_for` fails immediately if the label task has ended.
            let demoted = async { drop(state.wait_for(|state| !state.may_say_leader()).await) };
            let _ = tokio::time::timeout(label_wait, demoted).await;
        }
    }

    /// Waits until the label no longer says leader and all Events are sent, but at most
    /// `label_wait`.
    pub async fn last_words(&self) {
        let reported = async {
            if let Some(events) = &self.events {
                events.empty().await;
            }
        };
        let both = async { tokio::join!(self.demoted(), reported) };
        let _ = tokio::time::timeout(self.label_wait, both).await;
    }
}

impl Tasks {
    /// Waits for a task to end, which counts as a failure, and returns the task's name and the
    /// cause. Waits indefinitely if no task runs.
    pub async fn ended(&mut self) -> (&'static str, io::Error) {
        let (id, error) = match self.running.join_next_with_id().await {
            Some(Ok((id, Err(error)))) => (id, error),
            Some(Ok((id, Ok(())))) => (id, io::Error::other("the task returned without an error")),
            Some(Err(error)) => (error.id(), io::Error::other(error)),
            None => pending().await,
        };
        let named = self.names.iter().find(|(named, _)| *named == id);
        let (_, name) = named.expect("every task was named when it was started");
        (name, error)
    }

    /// Checks in the background that an admission policy restricts this pod's token, and logs an
    /// error if none does.
    pub fn verify_restriction(&mut self, examiner: Examiner, lease: String) {
        self.spawn("admission policy", examination::verify(examiner, lease));
    }

    fn spawn(
        &mut self,
        name: &'static str,
        task: impl Future<Output = io::Result<()>> + Send + 'static,
    ) {
        let id = self.running.spawn(task).id();
        self.names.push((id, name));
    }
}

#[cfg(test)]
mod tests;
