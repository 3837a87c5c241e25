//! The task that reports Events, best-effort and bounded in every direction.
//!
//! A repetition within ten minutes is counted in the existing Event instead of being reported
//! again, and more than a few Events per minute are dropped. An API server in trouble must not be
//! flooded by the pods that notice it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::api::{Api, ApiError};
use super::error_log::RequestErrorLog;
use super::event::PodEvent;
use super::labels::random;
use super::queue::{EventQueue, Occurrence};
use super::reconciler::REQUEST_TIME_MAX;
use super::request::Requests;
use super::retry::pause;
use leasehold_clock::boot_now;
use leasehold_core::election::{BootTime, Randomness};
use leasehold_metrics::Metrics;
use leasehold_mongodb::randomness::KernelRandomness;
use leasehold_status::Surface;

/// Maximum number of attempts to report one Event.
const ATTEMPTS_MAX: u32 = 3;
/// Time within which an equal occurrence counts as the same Event.
const SAME_WITHIN: Duration = Duration::from_secs(600);
/// Interval between updates of the count of a repeated Event. A renewal that fails every second
/// costs one request per minute.
const COUNT_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of Events remembered for counting. There are five reasons, and renewals fail in a
/// few ways.
const REMEMBERED_MAX: usize = 16;
/// Maximum burst of new Events, and the interval after which one more is allowed. A lease that
/// changes hands every minute is reported completely.
const BURST: u32 = 20;
const REFILL_INTERVAL: Duration = Duration::from_secs(20);

/// The Event's `reportingController`.
const CONTROLLER: &str = "leasehold.dev/leasehold";
/// Maximum length of `reportingInstance` in the API.
const INSTANCE_LENGTH_MAX: usize = 128;

/// Reports the Events in the queue.
pub(super) struct EventReporter {
    api: Arc<Api>,
    requests: Arc<Requests>,
    queue: EventQueue,
    metrics: Metrics,
    errors: RequestErrorLog,
    memory: ReportedEvents,
}

impl EventReporter {
    pub(super) fn new(
        api: Arc<Api>,
        requests: Arc<Requests>,
        metrics: Metrics,
    ) -> (EventQueue, Self) {
        let queue = EventQueue::new(metrics.clone());
        let subject = format!("Events on pod {}", requests.pod());
        let right = "create and patch events (events.k8s.io)";
        let errors = RequestErrorLog::new(Surface::Event, subject, right, &api, metrics.clone());
        let reporter = Self {
            api,
            requests,
            queue: queue.clone(),
            metrics,
            errors,
            memory: ReportedEvents::new(boot_now()),
        };
        (queue, reporter)
    }

    /// Runs indefinitely.
    pub(super) async fn run(mut self) -> std::io::Result<()> {
        loop {
            let occurrence = self.queue.next().await;
            self.report(occurrence).await;
            self.queue.done();
        }
    }

    async fn report(&mut self, occurrence: Occurrence) {
        let Occurrence {
            event,
            times,
            first,
            last,
        } = occurrence;
        let note = event.note(self.requests.lease());
        match self.memory.sort(event.reason(), &note, times, boot_now()) {
            Sorted::Counted => {}
            Sorted::TooMany => self.metrics.publish_failed(Surface::Event),
            Sorted::New => {
                let object = object(&self.requests, &event, &note, first, random_name());
                let accepted = self.send(|requests| requests.event(&object)).await;
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                // A repeating Event is remembered even if it was not accepted. Otherwise each
                // repetition would make all its attempts, and delay the Events behind it.
                if accepted || event.repeats() {
                    let name = accepted.then_some(name);
                    self.memory
                        .remember(event.reason(), note, name, times, boot_now());
                }
            }
            Sorted::Again { name, count } => {
                let series = json!({ "count": count, "lastObservedTime": date(last) });
                self.send(|requests| requests.event_again(&name, &series))
                    .await;
            }
        }
    }

    /// Returns true if the API server accepted the request, within [`ATTEMPTS_MAX`] attempts.
    async fn send(&mut self, request: impl Fn(&Requests) -> hyper::Request<Vec<u8>>) -> bool {
        for attempt in 1..=ATTEMPTS_MAX {
            let sending = self.api.send(request(&self.requests));
            let answer = tokio::time::timeout(REQUEST_TIME_MAX, sending).await;
            let error = match answer.unwrap_or(Err(ApiError::NO_ANSWER)) {
                Ok(_) => {
                    self.errors.over();
                    return true;
                }
                // A previous attempt created the Event, but its answer was lost.
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

/// The decision about an occurrence.
#[derive(Debug, PartialEq, Eq)]
enum Sorted {
    /// Report a new Event.
    New,
    /// Update the count of an existing Event.
    Again { name: String, count: u32 },
    /// Only counted; reported with the next update of the count.
    Counted,
    /// Dropped, because the limit of new Events is reached.
    TooMany,
}

/// The reported Events, and the number of new ones allowed.
#[derive(Debug)]
struct ReportedEvents {
    reported: VecDeque<Reported>,
    allowed: u32,
    refilled: BootTime,
}

#[derive(Debug)]
struct Reported {
    reason: &'static str,
    note: String,
    /// The name of the Event, if it was accepted.
    name: Option<String>,
    first: BootTime,
    count: u32,
    written: BootTime,
}

impl ReportedEvents {
    fn new(now: BootTime) -> Self {
        Self {
            reported: VecDeque::new(),
            allowed: BURST,
            refilled: now,
        }
    }

    /// Decides how to report `times` occurrences since the last call with the same reason and note.
    fn sort(&mut self, reason: &'static str, note: &str, times: u32, now: BootTime) -> Sorted {
        self.reported
            .retain(|reported| now.since(reported.first) < SAME_WITHIN);
        if let Some(reported) = self.find(reason, note) {
            reported.count = reported.count.saturating_add(times);
            if now.since(reported.written) < COUNT_INTERVAL {
                return Sorted::Counted;
            }
            reported.written = now;
            if let Some(name) = reported.name.clone() {
                let count = reported.count;
                return Sorted::Again { name, count };
            }
        }
        while self.allowed < BURST && now.since(self.refilled) >= REFILL_INTERVAL {
            self.allowed += 1;
            self.refilled = self.refilled + REFILL_INTERVAL;
        }
        if self.allowed == BURST {
            self.refilled = now;
        }
        match self.allowed.checked_sub(1) {
            Some(left) => {
                self.allowed = left;
                Sorted::New
            }
            None => Sorted::TooMany,
        }
    }

    /// Remembers an Event under its `name`, or without one if it was not accepted.
    fn remember(
        &mut self,
        reason: &'static str,
        note: String,
        name: Option<&str>,
        times: u32,
        now: BootTime,
    ) {
        let name = name.map(str::to_owned);
        if let Some(reported) = self.find(reason, &note) {
            reported.name = name;
            reported.written = now;
            return;
        }
        if self.reported.len() == REMEMBERED_MAX {
            self.reported.pop_front();
        }
        self.reported.push_back(Reported {
            reason,
            note,
            name,
            first: now,
            count: times,
            written: now,
        });
    }

    fn find(&mut self, reason: &'static str, note: &str) -> Option<&mut Reported> {
        let mut reported = self.reported.iter_mut();
        reported.find(|reported| reported.reason == reason && reported.note == note)
    }
}

fn object(
    requests: &Requests,
    event: &PodEvent,
    note: &str,
    wall: SystemTime,
    random: u64,
) -> Value {
    let instance: String = requests
        .identity()
        .chars()
        .filter(char::is_ascii)
        .take(INSTANCE_LENGTH_MAX)
        .collect();
    json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": requests.event_metadata(random),
        "eventTime": date(wall),
        "reportingController": CONTROLLER,
        "reportingInstance": instance,
        "regarding": requests.regarding(),
        "reason": event.reason(),
        "action": event.action(),
        "note": note,
        "type": if event.is_warning() { "Warning" } else { "Normal" },
    })
}

/// Formats a time as `MicroTime` of the API.
fn date(wall: SystemTime) -> String {
    humantime::format_rfc3339_micros(wall).to_string()
}

/// Returns a random number for a name. Names that collide cost one Event.
fn random_name() -> u64 {
    (KernelRandomness.bits() >> 64) as u64
}

#[cfg(test)]
mod tests;
