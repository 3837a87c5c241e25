//! The task that reports Events: best-effort, and bounded in every direction.
//!
//! What happens again within a while is counted in its Event instead of being
//! reported anew, and more than a few Events a minute are dropped: an API
//! server in trouble must not be flooded by the pods that notice it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::api::{Api, Trouble};
use super::event::Event;
use super::labels::random;
use super::queue::{EventQueue, Occurrence};
use super::request::Requests;
use super::retry::pause;
use super::trouble::Troubles;
use super::upkeep::REQUEST_TIME_MAX;
use crate::clock::boot_now;
use crate::election::BootTime;
use crate::publish::Surface;
use crate::publish::metrics::Metrics;

/// Attempts for one Event.
const ATTEMPTS_MAX: u32 = 3;
/// Within this long the same happening is the same Event.
const SAME_WITHIN: Duration = Duration::from_secs(600);
/// From one count of a repeated Event to the next: a renewal that fails each
/// second is one request a minute.
const COUNT_INTERVAL: Duration = Duration::from_secs(60);
/// Events that are remembered for counting: there are five reasons, and
/// renewals fail in a few ways.
const REMEMBERED_MAX: usize = 16;
/// Events that may be created at once, and how long one more takes to be
/// allowed: a lease that changes hands each minute is reported in full.
const BURST: u32 = 20;
const REFILL_INTERVAL: Duration = Duration::from_secs(20);

/// Who reports, in the Event.
const CONTROLLER: &str = "leasehold.dev/leasehold";
/// The longest `reportingInstance` that the API takes.
const INSTANCE_LENGTH_MAX: usize = 128;

/// Reports what is in the queue.
pub(super) struct EventReporter {
    api: Arc<Api>,
    requests: Arc<Requests>,
    queue: EventQueue,
    metrics: Metrics,
    troubles: Troubles,
    memory: Memory,
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
        let reporter = Self {
            api,
            requests,
            queue: queue.clone(),
            metrics: metrics.clone(),
            troubles: Troubles::new(Surface::Event, subject, right, metrics),
            memory: Memory::new(boot_now()),
        };
        (queue, reporter)
    }

    /// Runs for ever.
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
                // What repeats itself is remembered in any case: else each
                // repetition would take its attempts before all that is behind it.
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

    /// Whether it was accepted, after a few attempts at most.
    async fn send(&mut self, request: impl Fn(&Requests) -> hyper::Request<Vec<u8>>) -> bool {
        for attempt in 1..=ATTEMPTS_MAX {
            let sending = self.api.send(request(&self.requests));
            let answer = tokio::time::timeout(REQUEST_TIME_MAX, sending).await;
            let trouble = match answer.unwrap_or(Err(Trouble::NO_ANSWER)) {
                Ok(_) => {
                    self.troubles.over();
                    return true;
                }
                // A create whose answer was lost, and that is there.
                Err(Trouble {
                    status: Some(409), ..
                }) if attempt > 1 => return true,
                Err(trouble) => trouble,
            };
            self.troubles.goes_on(&trouble);
            let Some(wait) = pause(trouble.remedy, attempt, random()) else {
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

/// What to do about a happening.
#[derive(Debug, PartialEq, Eq)]
enum Sorted {
    /// An Event of its own.
    New,
    /// One that is there happened so many times.
    Again { name: String, count: u32 },
    /// The same as before, and reported with the next count.
    Counted,
    /// One too many.
    TooMany,
}

/// Which Events there are, and how many more there may be.
#[derive(Debug)]
struct Memory {
    reported: VecDeque<Reported>,
    allowed: u32,
    refilled: BootTime,
}

#[derive(Debug)]
struct Reported {
    reason: &'static str,
    note: String,
    /// The Event's, if it was accepted.
    name: Option<String>,
    first: BootTime,
    count: u32,
    written: BootTime,
}

impl Memory {
    fn new(now: BootTime) -> Self {
        Self {
            reported: VecDeque::new(),
            allowed: BURST,
            refilled: now,
        }
    }

    /// It happened so many times since it was sorted last.
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

    /// It was reported as `name`, or could not be.
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

fn object(requests: &Requests, event: &Event, note: &str, wall: SystemTime, random: u64) -> Value {
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

/// A `MicroTime` of the API.
fn date(wall: SystemTime) -> String {
    humantime::format_rfc3339_micros(wall).to_string()
}

/// Without randomness names could collide, which costs one Event.
fn random_name() -> u64 {
    let mut bytes = [0; 8];
    let _ = getrandom::fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests;
