//! The bounded queue of Events to report. Equal repeating Events are merged into one, and if the
//! queue is full, repeating Events give way to the others.

use std::collections::VecDeque;
use std::time::SystemTime;

use tokio::sync::watch;

use super::event::PodEvent;
use leasehold_clock::wall_now;
use leasehold_metrics::Metrics;
use leasehold_status::Surface;

/// Maximum number of queued Events. A change of leadership makes two, renewals fail in a few ways,
/// and a report takes some 15 s while the API server does not answer.
const WAITING_MAX: usize = 16;

/// A handle on the queue of Events. Clones share the queue.
#[derive(Debug, Clone)]
pub(super) struct EventQueue {
    line: watch::Sender<QueuedEvents>,
    metrics: Metrics,
}

/// An Event, and how many times it happened while it was queued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Occurrence {
    pub(super) event: PodEvent,
    pub(super) times: u32,
    pub(super) first: SystemTime,
    pub(super) last: SystemTime,
}

impl EventQueue {
    pub(super) fn new(metrics: Metrics) -> Self {
        let (line, _) = watch::channel(QueuedEvents::default());
        Self { line, metrics }
    }

    pub(super) fn offer(&self, event: PodEvent) {
        let mut offered = Offered::InLine;
        self.line
            .send_modify(|line| offered = line.offer(event, wall_now()));
        match offered {
            Offered::InLine => {}
            Offered::OneLost => self.metrics.publish_failed(Surface::Event),
        }
    }

    /// Waits for an Event and removes it from the queue.
    pub(super) async fn next(&self) -> Occurrence {
        let mut line = self.line.subscribe();
        loop {
            // This queue holds a sender itself, so the channel stays open.
            drop(line.wait_for(|line| !line.waiting.is_empty()).await);
            let mut taken = None;
            self.line.send_modify(|line| taken = line.take());
            if let Some(taken) = taken {
                return taken;
            }
        }
    }

    /// Marks the last removed Event as reported or given up.
    pub(super) fn done(&self) {
        self.line.send_modify(|line| line.under_way = false);
    }

    /// Closes the queue, because the reporter was dropped.
    pub(super) fn close(&self) {
        self.line.send_modify(|line| {
            *line = QueuedEvents {
                closed: true,
                ..QueuedEvents::default()
            };
        });
    }

    /// Waits until all Events are reported, or until the queue is closed.
    pub(super) async fn empty(&self) {
        let mut line = self.line.subscribe();
        drop(line.wait_for(QueuedEvents::is_empty).await);
    }
}

#[derive(Debug, Default)]
struct QueuedEvents {
    waiting: VecDeque<Occurrence>,
    /// True while the last removed Event is being reported.
    under_way: bool,
    closed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Offered {
    /// The Event is queued, by itself or merged with an equal one.
    InLine,
    /// The Event was dropped, or it replaced another Event.
    OneLost,
}

impl QueuedEvents {
    fn offer(&mut self, event: PodEvent, wall: SystemTime) -> Offered {
        if self.closed {
            return Offered::OneLost;
        }
        if event.repeats() {
            let same = self.waiting.iter_mut().find(|other| other.event == event);
            if let Some(same) = same {
                same.times = same.times.saturating_add(1);
                same.last = wall;
                return Offered::InLine;
            }
        }
        let full = self.waiting.len() >= WAITING_MAX;
        if full {
            // Repeating Events give way to Events that happen once.
            let repeating = self.waiting.iter().position(|other| other.event.repeats());
            match repeating {
                Some(index) if !event.repeats() => drop(self.waiting.remove(index)),
                Some(_) | None => return Offered::OneLost,
            }
        }
        self.waiting.push_back(Occurrence {
            event,
            times: 1,
            first: wall,
            last: wall,
        });
        if full {
            Offered::OneLost
        } else {
            Offered::InLine
        }
    }

    fn take(&mut self) -> Option<Occurrence> {
        let taken = self.waiting.pop_front()?;
        self.under_way = true;
        Some(taken)
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && !self.under_way
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::borrow::Cow;
    use std::time::Duration;

    use super::*;
    use leasehold_core::election::Token;

    const FAILING: PodEvent = PodEvent::RenewalFailing {
        why: Cow::Borrowed("no answer"),
    };

    fn wall(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    pub(crate) fn stepped_down(token: i64) -> PodEvent {
        PodEvent::SteppedDown {
            token: Token::new(token),
            reason: None,
        }
    }

    fn waiting(line: &QueuedEvents) -> Vec<PodEvent> {
        line.waiting.iter().map(|o| o.event.clone()).collect()
    }

    #[test]
    fn renewals_that_fail_while_one_waits_are_counted_with_it_and_keep_nothing_out() {
        let mut line = QueuedEvents::default();
        for second in 0..1000 {
            assert_eq!(line.offer(FAILING, wall(second)), Offered::InLine);
        }
        assert_eq!(line.offer(stepped_down(7), wall(1000)), Offered::InLine);
        assert_eq!(waiting(&line), [FAILING, stepped_down(7)]);
        let failing = line.take().unwrap();
        assert_eq!(failing.times, 1000);
        assert_eq!((failing.first, failing.last), (wall(0), wall(999)));
        // An Event that is being reported is not merged with later ones.
        assert_eq!(line.offer(FAILING, wall(1001)), Offered::InLine);
        assert_eq!(waiting(&line), [stepped_down(7), FAILING]);
    }

    #[test]
    fn events_that_happen_once_are_not_counted_together() {
        let mut line = QueuedEvents::default();
        for _ in 0..2 {
            assert_eq!(line.offer(stepped_down(7), wall(0)), Offered::InLine);
        }
        assert_eq!(line.waiting.len(), 2);
    }

    #[test]
    fn a_full_queue_drops_repeating_events_first() {
        let mut line = QueuedEvents::default();
        assert_eq!(line.offer(stepped_down(1), wall(0)), Offered::InLine);
        assert_eq!(line.offer(FAILING, wall(0)), Offered::InLine);
        for token in 2..WAITING_MAX as i64 {
            assert_eq!(line.offer(stepped_down(token), wall(0)), Offered::InLine);
        }
        let all: Vec<_> = (1..=WAITING_MAX as i64).map(stepped_down).collect();
        let last = all[WAITING_MAX - 1].clone();
        assert_eq!(line.offer(last, wall(1)), Offered::OneLost);
        assert_eq!(waiting(&line), all, "in their order");
        assert_eq!(line.offer(FAILING, wall(2)), Offered::OneLost);
        assert_eq!(line.offer(stepped_down(99), wall(2)), Offered::OneLost);
        assert_eq!(waiting(&line), all);
    }

    #[test]
    fn a_line_is_empty_only_when_the_last_report_is_done() {
        let mut line = QueuedEvents::default();
        assert!(line.is_empty());
        let _ = line.offer(FAILING, wall(0));
        assert!(!line.is_empty());
        assert!(line.take().is_some() && !line.is_empty());
        line.under_way = false;
        assert!(line.is_empty());
    }
}
