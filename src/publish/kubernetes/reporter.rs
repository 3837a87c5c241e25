//! The task that reports Events: best-effort, and bounded in every direction.
//!
//! What happens again within a while is counted in its Event instead of being
//! reported anew, and more than a few Events a minute are dropped: an API
//! server in trouble must not be flooded by the pods that notice it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use super::api::{Api, Remedy, Trouble};
use super::event::Event;
use super::request::Requests;
use super::trouble::Troubles;
use super::upkeep::{REQUEST_TIME_MAX, backoff};
use crate::clock::{boot_now, wall_now};
use crate::election::BootTime;
use crate::publish::Surface;
use crate::publish::metrics::Metrics;

/// Events that wait: a change of leadership makes two, and one that fails is
/// tried for [`ATTEMPTS_MAX`] times.
const QUEUE_LENGTH_MAX: usize = 16;
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

/// Where Events are put in. Clones share the queue.
#[derive(Debug, Clone)]
pub(super) struct EventQueue {
    events: mpsc::Sender<Occurrence>,
    open: watch::Sender<usize>,
    metrics: Metrics,
}

#[derive(Debug)]
struct Occurrence {
    event: Event,
    wall: SystemTime,
}

impl EventQueue {
    pub(super) fn offer(&self, event: Event) {
        let wall = wall_now();
        self.open.send_modify(|open| *open += 1);
        if self.events.try_send(Occurrence { event, wall }).is_err() {
            self.open.send_modify(|open| *open -= 1);
            self.metrics.publish_failed(Surface::Event);
        }
    }

    /// Waits until nothing is to be reported.
    pub(super) async fn empty(&self) {
        // A task that is gone reports nothing.
        let _ = self.open.subscribe().wait_for(|open| *open == 0).await;
    }
}

/// Reports what is in the queue.
pub(super) struct EventReporter {
    api: Arc<Api>,
    requests: Arc<Requests>,
    queue: mpsc::Receiver<Occurrence>,
    open: watch::Sender<usize>,
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
        let (events, queue) = mpsc::channel(QUEUE_LENGTH_MAX);
        let (open, _) = watch::channel(0);
        let subject = format!("Events on pod {}", requests.pod());
        let right = "create and patch events (events.k8s.io)";
        let reporter = Self {
            api,
            requests,
            queue,
            open: open.clone(),
            metrics: metrics.clone(),
            troubles: Troubles::new(Surface::Event, subject, right, metrics.clone()),
            memory: Memory::new(boot_now()),
        };
        let queue = EventQueue {
            events,
            open,
            metrics,
        };
        (queue, reporter)
    }

    /// Runs while there is somebody who puts Events in, and then for ever.
    pub(super) async fn run(mut self) -> std::io::Result<()> {
        while let Some(occurrence) = self.queue.recv().await {
            self.report(occurrence).await;
            self.open.send_modify(|open| *open -= 1);
        }
        std::future::pending().await
    }

    async fn report(&mut self, occurrence: Occurrence) {
        let Occurrence { event, wall } = occurrence;
        let note = event.note(self.requests.lease());
        match self.memory.sort(event.reason(), &note, boot_now()) {
            Sorted::Counted => {}
            Sorted::TooMany => self.metrics.publish_failed(Surface::Event),
            Sorted::New => {
                let random = random_name();
                let object = object(&self.requests, &event, &note, wall, random);
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                if self.send(|requests| requests.event(&object)).await {
                    self.memory.remember(event.reason(), note, name, boot_now());
                }
            }
            Sorted::Again { name, count } => {
                let series = json!({ "count": count, "lastObservedTime": date(wall) });
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
            let wait = match trouble.remedy {
                Remedy::Again => backoff(attempt, 0),
                Remedy::After(asked) => asked.min(REQUEST_TIME_MAX),
                Remedy::Person | Remedy::NewPod => return false,
            };
            tokio::time::sleep(wait).await;
        }
        false
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
    name: String,
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

    fn sort(&mut self, reason: &'static str, note: &str, now: BootTime) -> Sorted {
        self.reported
            .retain(|reported| now.since(reported.first) < SAME_WITHIN);
        let same = |reported: &&mut Reported| reported.reason == reason && reported.note == note;
        if let Some(reported) = self.reported.iter_mut().find(same) {
            reported.count += 1;
            if now.since(reported.written) < COUNT_INTERVAL {
                return Sorted::Counted;
            }
            reported.written = now;
            return Sorted::Again {
                name: reported.name.clone(),
                count: reported.count,
            };
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

    fn remember(&mut self, reason: &'static str, note: String, name: &str, now: BootTime) {
        if self.reported.len() == REMEMBERED_MAX {
            self.reported.pop_front();
        }
        self.reported.push_back(Reported {
            reason,
            note,
            name: name.to_owned(),
            first: now,
            count: 1,
            written: now,
        });
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
