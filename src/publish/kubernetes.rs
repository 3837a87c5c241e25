//! What a pod says of its candidate: a label that a Service can select, and Events.
//!
//! Nothing here is needed for the exclusion, and nothing waits for it but the
//! step-down, for a bounded moment: the API server may be slow, frozen or gone.
//! A label is no deadline. `docs/kubernetes.md` says how far behind it can be.

mod access;
mod api;
mod event;
mod in_sync;
mod labels;
mod others;
mod queue;
mod reporter;
mod request;
mod retry;
mod trouble;
mod upkeep;

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{Id, JoinSet};

pub use self::access::{
    Access, CREDENTIALS_DIRECTORY, NotInCluster, SERVICE_HOST, SERVICE_PORT, Unusable,
};
pub use self::api::Api;
pub use self::event::Event;
pub use self::in_sync::LabelInSync;
pub use self::request::{NotAName, Pod};
pub use self::upkeep::{Label, Shown};

use self::labels::Labels;
use self::others::Others;
use self::queue::EventQueue;
use self::reporter::EventReporter;
use self::request::Requests;
use super::metrics::Metrics;
use super::render::Identification;
use crate::election::Status;

/// From one write of a label that is right to the next: so that a label which
/// somebody edits or removes is right again within a minute, at one request a
/// minute and pod.
pub const REPAIR_INTERVAL: Duration = Duration::from_secs(60);

/// The longest time that a step-down may be made to wait for a label. The
/// candidate gives its surfaces half a second in all before it takes a status
/// file for stuck.
pub const LABEL_WAIT_MAX: Duration = Duration::from_millis(400);

/// What is published, and where.
#[derive(Debug, Clone)]
pub struct KubernetesOptions {
    /// The pod that this candidate runs in.
    pub pod: Pod,
    /// The label is `<prefix>/<lease>`.
    pub label_prefix: String,
    /// How long a step-down waits for the label at most; see [`LABEL_WAIT_MAX`].
    pub label_wait: Duration,
    /// Whether a new leader sets the labels of other pods that still say leader.
    pub demote_others: bool,
    /// Whether Events are reported.
    pub events: bool,
    /// As [`REPAIR_INTERVAL`].
    pub repair_interval: Duration,
}

/// What the daemon asks of the label and tells to the Events. Clones share both.
#[derive(Debug, Clone)]
pub struct Kubernetes {
    shown: watch::Receiver<Shown>,
    events: Option<EventQueue>,
    label_wait: Duration,
}

/// The tasks behind a [`Kubernetes`]. None of them ends but by a fault.
#[derive(Debug, Default)]
pub struct Tasks {
    running: JoinSet<io::Result<()>>,
    names: Vec<(Id, &'static str)>,
}

impl Kubernetes {
    /// Begins to publish. To be called inside a tokio runtime.
    ///
    /// # Errors
    /// When the kernel gives no timer, or two metrics collide.
    pub fn spawn(
        api: Api,
        options: KubernetesOptions,
        who: &Identification,
        status: &watch::Receiver<Status>,
        metrics: &Metrics,
    ) -> io::Result<(Self, Tasks)> {
        let KubernetesOptions {
            pod,
            label_prefix,
            label_wait,
            demote_others,
            events,
            repair_interval,
        } = options;
        let api = Arc::new(api);
        let requests = Arc::new(Requests::new(pod, &label_prefix, who));
        let (labels, shown) = Labels::new(
            Arc::clone(&api),
            Arc::clone(&requests),
            status.clone(),
            metrics.clone(),
            repair_interval,
        )?;
        let in_sync = LabelInSync::new(&who.lease, status.clone(), shown.clone());
        in_sync
            .and_then(|gauge| metrics.registry().register(Box::new(gauge)))
            .map_err(io::Error::other)?;
        let mut tasks = Tasks::default();
        tasks.spawn("label", labels.run());
        if demote_others {
            let others = Others::new(
                Arc::clone(&api),
                Arc::clone(&requests),
                status.clone(),
                metrics.clone(),
            )?;
            tasks.spawn("labels of other pods", others.run());
        }
        let events = events.then(|| {
            let (queue, reporter) = EventReporter::new(api, requests, metrics.clone());
            tasks.spawn("events", reporter.run());
            queue
        });
        let this = Self {
            shown,
            events,
            label_wait,
        };
        Ok((this, tasks))
    }

    /// Reports an Event, if there is room. Never blocks.
    pub fn report(&self, event: Event) {
        if let Some(events) = &self.events {
            events.offer(event);
        }
    }

    /// Waits until no label of this pod says leader, for `label_wait` at most.
    /// To be called after the status says so.
    pub fn demoted(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut shown = self.shown.clone();
        let label_wait = self.label_wait;
        async move {
            // A task that is gone cannot be waited for.
            let demoted = async {
                shown
                    .wait_for(|shown| !shown.may_say_leader())
                    .await
                    .is_ok()
            };
            let _ = tokio::time::timeout(label_wait, demoted).await;
        }
    }

    /// Waits, for `label_wait` at most, until the label says follower and all
    /// Events are out: the last thing before the process ends.
    pub async fn last_words(&self) {
        let reported = async {
            if let Some(events) = &self.events {
                events.empty().await;
            }
        };
        let _ = tokio::time::timeout(self.label_wait, async {
            tokio::join!(self.demoted(), reported)
        })
        .await;
    }
}

impl Tasks {
    /// Waits for the end of a task, which is always a fault: its name, and why
    /// it ended. The others go on. Waits for ever when all have ended.
    pub async fn ended(&mut self) -> (&'static str, io::Error) {
        let (id, error) = match self.running.join_next_with_id().await {
            Some(Ok((id, Err(error)))) => (id, error),
            Some(Ok((id, Ok(())))) => (id, io::Error::other("it ended by itself")),
            Some(Err(error)) => (error.id(), io::Error::other(error)),
            None => pending().await,
        };
        let named = self.names.iter().find(|(named, _)| *named == id);
        let (_, name) = named.expect("every task was named when it was started");
        (name, error)
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
