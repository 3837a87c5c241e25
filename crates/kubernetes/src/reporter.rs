//! The task that reports Events, best effort, with a bounded number of attempts.

use std::sync::Arc;
use std::time::SystemTime;

use serde_json::{Value, json};

use super::api::ApiError;
use super::error_log::RequestErrorLog;
use super::event::PodEvent;
use super::labels::random;
use super::queue::{EventQueue, Occurrences};
use super::request::Requests;
use super::retry::pause;
use leasehold_clock::boot_now;
use leasehold_core::election::Randomness;
use leasehold_metrics::Metrics;
use leasehold_mongodb::randomness::KernelRandomness;
use leasehold_status::Surface;

const ATTEMPTS_MAX: u32 = 3;
const CONTROLLER: &str = "leasehold.dev/leasehold";
/// Maximum length of `reportingInstance` in the API.
const INSTANCE_LENGTH_MAX: usize = 128;

pub(super) struct EventReporter {
    requests: Arc<Requests>,
    queue: EventQueue,
    errors: RequestErrorLog,
}

impl EventReporter {
    pub(super) fn new(requests: Arc<Requests>, metrics: Metrics) -> (EventQueue, Self) {
        let queue = EventQueue::new(metrics.clone());
        let subject = format!("Events on pod {}", requests.pod);
        let right = "create and patch events (events.k8s.io)";
        let errors = RequestErrorLog::new(Surface::Event, subject, right, &requests.api, metrics);
        let reporter = Self {
            requests,
            queue: queue.clone(),
            errors,
        };
        (queue, reporter)
    }

    pub(super) async fn run(mut self) -> std::io::Result<()> {
        loop {
            let occurrences = self.queue.next().await;
            let name = self.report(&occurrences).await;
            self.queue.done(&occurrences, name);
        }
    }

    /// Returns the name of the Event if the API server has ever accepted it.
    async fn report(&mut self, occurrences: &Occurrences) -> Option<String> {
        if let Some(name) = &occurrences.name {
            let last = date(occurrences.last);
            let series = json!({ "count": occurrences.count, "lastObservedTime": last });
            self.send(|requests| requests.event_again(name, &series))
                .await;
            return Some(name.clone());
        }
        let Occurrences { event, first, .. } = occurrences;
        let object = object(&self.requests, event, *first, random_name());
        let accepted = self.send(|requests| requests.event(&object)).await;
        let name = object["metadata"]["name"].as_str()?;
        accepted.then(|| name.to_owned())
    }

    async fn send(&mut self, request: impl Fn(&Requests) -> hyper::Request<Vec<u8>>) -> bool {
        for attempt in 1..=ATTEMPTS_MAX {
            let sent = self.requests.api.send_in_time(request(&self.requests));
            let error = match sent.await {
                Ok(_) => {
                    self.errors.over();
                    return true;
                }
                // An earlier attempt created the Event, but the answer was lost.
                Err(ApiError {
                    status: Some(409), ..
                }) if attempt > 1 => return true,
                Err(error) => error,
            };
            self.errors.failed(&error, boot_now());
            let Some(wait) = pause(error.retry, attempt, random()) else {
                return false;
            };
            if attempt < ATTEMPTS_MAX {
                tokio::time::sleep(wait).await;
            }
        }
        false
    }
}

impl Drop for EventReporter {
    fn drop(&mut self) {
        self.queue.close();
    }
}

fn object(requests: &Requests, event: &PodEvent, wall: SystemTime, random: u64) -> Value {
    let identity = requests.identity.chars().filter(char::is_ascii);
    let mut instance: String = identity.take(INSTANCE_LENGTH_MAX).collect();
    if instance.is_empty() {
        // The API server requires a value.
        instance = CONTROLLER.to_owned();
    }
    json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": requests.event_metadata(random),
        "eventTime": date(wall),
        "reportingController": CONTROLLER,
        "reportingInstance": instance,
        "regarding": requests.regarding(),
        "reason": event.reason,
        "action": event.action,
        "note": event.note,
        "type": if event.warning { "Warning" } else { "Normal" },
    })
}

fn date(wall: SystemTime) -> String {
    humantime::format_rfc3339_micros(wall).to_string()
}

/// If two names collide, one Event is lost.
fn random_name() -> u64 {
    (KernelRandomness.bits() >> 64) as u64
}
