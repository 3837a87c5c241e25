//! The queue of Events to report. To limit the load, an Event that recurs within ten minutes is
//! only counted, and new Events beyond a few per minute are dropped.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;

use super::event::PodEvent;
use leasehold_clock::{boot_now, wall_now};
use leasehold_core::election::BootTime;
use leasehold_metrics::Metrics;
use leasehold_status::Surface;

/// Maximum number of waiting Events. A change of leader causes two Events, and reporting an Event
/// may take 15 s.
const WAITING_MAX: usize = 16;
/// Maximum number of Events that wait or are remembered for counting.
const KNOWN_MAX: usize = 2 * WAITING_MAX;
/// Period during which a recurring Event is only counted.
const SAME_WITHIN: Duration = Duration::from_secs(600);
/// Minimum interval between two updates of a repeated Event's count.
const COUNT_INTERVAL: Duration = Duration::from_secs(60);
/// With [`REFILL_INTERVAL`], enough for all Events of a lease that changes hands every minute.
const BURST: u32 = 20;
const REFILL_INTERVAL: Duration = Duration::from_secs(20);

#[derive(Debug, Clone)]
pub(super) struct EventQueue {
    known: watch::Sender<KnownEvents>,
    metrics: Metrics,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Occurrences {
    pub(super) event: PodEvent,
    /// The Event's name once the API server has accepted it; then only the count is reported.
    pub(super) name: Option<String>,
    pub(super) count: u32,
    pub(super) first: SystemTime,
    pub(super) last: SystemTime,
}

impl EventQueue {
    pub(super) fn new(metrics: Metrics) -> Self {
        let (known, _) = watch::channel(KnownEvents::new(boot_now()));
        Self { known, metrics }
    }

    pub(super) fn offer(&self, event: PodEvent) {
        self.known.send_modify(|known| {
            if !known.offer(event, wall_now(), boot_now()) {
                self.metrics.publish_failed(Surface::Event);
            }
        });
    }

    pub(super) async fn next(&self) -> Occurrences {
        let mut known = self.known.subscribe();
        loop {
            // Cannot fail, because this queue owns a sender.
            drop(known.wait_for(KnownEvents::any_waits).await);
            let mut taken = None;
            self.known
                .send_modify(|known| taken = known.take(boot_now()));
            if let Some(taken) = taken {
                return taken;
            }
        }
    }

    /// Records the result of reporting the Event that was taken last. `name` is `None` if the
    /// report failed.
    pub(super) fn done(&self, reported: &Occurrences, name: Option<String>) {
        self.known.send_modify(|known| known.done(reported, name));
    }

    pub(super) fn close(&self) {
        self.known.send_modify(|known| {
            known.events.clear();
            known.under_way = false;
            known.closed = true;
        });
    }

    /// Waits until all Events are reported, or until the queue is closed.
    pub(super) async fn empty(&self) {
        let mut known = self.known.subscribe();
        let is_empty = |known: &KnownEvents| !known.any_waits() && !known.under_way;
        drop(known.wait_for(is_empty).await);
    }
}

#[derive(Debug)]
struct KnownEvents {
    events: VecDeque<KnownEvent>,
    under_way: bool,
    closed: bool,
    allowed: u32,
    refilled: BootTime,
}

#[derive(Debug)]
struct KnownEvent {
    occurrences: Occurrences,
    since: BootTime,
    waits: bool,
    tried: BootTime,
}

impl KnownEvents {
    fn new(now: BootTime) -> Self {
        Self {
            events: VecDeque::new(),
            under_way: false,
            closed: false,
            allowed: BURST,
            refilled: now,
        }
    }

    /// May replace a repeating Event in a full queue. Returns false if an Event was dropped.
    fn offer(&mut self, event: PodEvent, wall: SystemTime, now: BootTime) -> bool {
        if self.closed {
            return false;
        }
        self.events
            .retain(|known| known.waits || now.since(known.since) < SAME_WITHIN);
        if let Some(known) = self.find(&event) {
            known.waits |= now.since(known.tried) >= COUNT_INTERVAL;
            known.occurrences.count = known.occurrences.count.saturating_add(1);
            known.occurrences.last = wall;
            return true;
        }
        let full = self.events.iter().filter(|known| known.waits).count() >= WAITING_MAX;
        let gives_way = |known: &KnownEvent| match full {
            true => known.waits && known.occurrences.event.repeats() && !event.repeats(),
            false => !known.waits,
        };
        let removed = self.events.iter().position(gives_way);
        if full && removed.is_none() || !self.is_allowed(now) {
            return false;
        }
        if let Some(index) = removed.filter(|_| full || self.events.len() >= KNOWN_MAX) {
            self.events.remove(index);
        }
        self.events.push_back(KnownEvent {
            occurrences: Occurrences {
                event,
                name: None,
                count: 1,
                first: wall,
                last: wall,
            },
            since: now,
            waits: true,
            tried: now,
        });
        !full
    }

    fn is_allowed(&mut self, now: BootTime) -> bool {
        while self.allowed < BURST && now.since(self.refilled) >= REFILL_INTERVAL {
            self.allowed += 1;
            self.refilled = self.refilled + REFILL_INTERVAL;
        }
        if self.allowed == BURST {
            self.refilled = now;
        }
        let left = self.allowed.checked_sub(1);
        self.allowed = left.unwrap_or_default();
        left.is_some()
    }

    fn take(&mut self, now: BootTime) -> Option<Occurrences> {
        let known = self.events.iter_mut().find(|known| known.waits)?;
        known.waits = false;
        known.tried = now;
        self.under_way = true;
        Some(known.occurrences.clone())
    }

    /// A repeating Event stays known even if its report failed, because reporting every recurrence
    /// again would delay other Events. If the report of a non-repeating Event failed, the Event is
    /// forgotten, or reported again if it recurred during the report.
    fn done(&mut self, reported: &Occurrences, name: Option<String>) {
        self.under_way = false;
        let event = &reported.event;
        let forget = name.is_none() && !event.repeats();
        let Some(known) = self.find(event) else {
            return;
        };
        let happened_again = known.occurrences.count > reported.count;
        known.occurrences.name = name;
        known.waits |= forget && happened_again;
        if forget && !happened_again {
            self.events
                .retain(|known| known.occurrences.event != *event);
        }
    }

    fn any_waits(&self) -> bool {
        self.events.iter().any(|known| known.waits)
    }

    fn find(&mut self, event: &PodEvent) -> Option<&mut KnownEvent> {
        let mut events = self.events.iter_mut();
        events.find(|known| known.occurrences.event == *event)
    }
}

#[cfg(test)]
pub(super) mod tests;
