use super::*;
use leasehold_core::election::{ResourceName, Role, Token, Transition};

fn lease() -> ResourceName {
    ResourceName::new("orders").unwrap()
}

fn failing() -> PodEvent {
    PodEvent::of_failed_renewal(&lease(), "no answer")
}

pub(crate) fn transition(token: i64) -> Transition {
    Transition {
        from: Role::Leader,
        to: Role::Follower,
        reason: None,
        token: Token::new(token),
        lasted: Duration::ZERO,
    }
}

fn stepped_down(token: i64) -> PodEvent {
    PodEvent::of_transition(&lease(), &transition(token)).unwrap()
}

fn at(seconds: u64) -> BootTime {
    BootTime::from_nanos(0) + Duration::from_secs(1_000 + seconds)
}

fn wall(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

impl KnownEvents {
    fn offer_at(&mut self, event: PodEvent, second: u64) -> bool {
        self.offer(event, wall(second), at(second))
    }

    fn waiting(&self) -> Vec<PodEvent> {
        let waiting = self.events.iter().filter(|known| known.waits);
        waiting
            .map(|known| known.occurrences.event.clone())
            .collect()
    }

    /// Reports all waiting Events. Returns their counts and previous names.
    fn report(&mut self, second: u64, name: Option<&str>) -> Vec<(u32, Option<String>)> {
        let mut reported = Vec::new();
        while let Some(taken) = self.take(at(second)) {
            let name = taken.name.clone().or(name.map(str::to_owned));
            self.done(&taken, name);
            reported.push((taken.count, taken.name));
        }
        reported
    }
}

#[test]
fn renewals_that_fail_while_one_waits_are_counted_with_it_and_keep_nothing_out() {
    let mut known = KnownEvents::new(at(0));
    for second in 0..500 {
        assert!(known.offer_at(failing(), second));
    }
    assert!(known.offer_at(stepped_down(7), 500));
    assert_eq!(known.waiting(), [failing(), stepped_down(7)]);
    let taken = known.take(at(500)).unwrap();
    assert_eq!((taken.event, taken.count), (failing(), 500));
    assert_eq!((taken.first, taken.last), (wall(0), wall(499)));
    // A recurrence during the report is counted.
    assert!(known.offer_at(failing(), 501));
    assert_eq!(known.waiting(), [stepped_down(7)]);
}

#[test]
fn a_full_queue_drops_repeating_events_first() {
    let mut known = KnownEvents::new(at(0));
    assert!(known.offer_at(stepped_down(1), 0));
    assert!(known.offer_at(failing(), 0));
    for token in 2..WAITING_MAX as i64 {
        assert!(known.offer_at(stepped_down(token), 0));
    }
    let all: Vec<_> = (1..=WAITING_MAX as i64).map(stepped_down).collect();
    let last = all[WAITING_MAX - 1].clone();
    assert!(!known.offer_at(last, 1));
    assert_eq!(known.waiting(), all, "the order is kept");
    assert!(!known.offer_at(failing(), 2));
    assert!(!known.offer_at(stepped_down(99), 2));
    assert_eq!(known.waiting(), all);
}

#[tokio::test]
async fn a_queue_is_empty_only_when_the_last_report_is_done() {
    let (_, status) = watch::channel(leasehold_metrics::fixture::status(Role::Unknown));
    let queue = EventQueue::new(leasehold_metrics::fixture::metrics(status));
    let is_empty = || async {
        let moment = Duration::from_millis(1);
        tokio::time::timeout(moment, queue.empty()).await.is_ok()
    };
    assert!(is_empty().await);
    queue.offer(failing());
    assert!(!is_empty().await);
    let taken = queue.next().await;
    assert!(!is_empty().await);
    queue.done(&taken, None);
    assert!(is_empty().await);
}

#[test]
fn a_renewal_that_fails_each_second_is_one_event_and_a_count_a_minute() {
    let mut known = KnownEvents::new(at(0));
    let mut requests = Vec::new();
    for second in 0..300 {
        assert!(known.offer_at(failing(), second));
        for (count, name) in known.report(second, Some("a.1")) {
            assert_eq!(
                name.is_some(),
                second > 0,
                "only the first report creates an Event"
            );
            requests.push((second, count));
        }
    }
    let expected = [(0, 1), (60, 61), (120, 121), (180, 181), (240, 241)];
    assert_eq!(requests, expected);
}

#[test]
fn a_repetition_after_a_while_is_another_event() {
    let mut known = KnownEvents::new(at(0));
    let mut new = |event, second| {
        known.offer_at(event, second);
        known.report(second, Some("a.1")) == [(1, None)]
    };
    assert!(new(stepped_down(1), 0));
    assert!(new(stepped_down(2), 1), "another note");
    assert!(!new(stepped_down(1), 599));
    assert!(new(stepped_down(1), 600));
}

#[test]
fn an_event_that_was_not_accepted_is_reported_anew() {
    let mut known = KnownEvents::new(at(0));
    for second in [0, 1] {
        assert!(known.offer_at(stepped_down(1), second));
        assert_eq!(known.report(second, None), [(1, None)]);
    }
}

#[test]
fn an_event_that_happens_again_during_a_failed_report_is_reported_anew() {
    let mut known = KnownEvents::new(at(0));
    assert!(known.offer_at(stepped_down(7), 0));
    let taken = known.take(at(0)).expect("an Event");
    assert!(known.offer_at(stepped_down(7), 1));
    known.done(&taken, None);
    assert_eq!(known.waiting(), [stepped_down(7)]);
    known.report(20, None);
    assert!(
        known.events.is_empty(),
        "nothing recurred during the report"
    );
}

#[test]
fn a_renewal_failure_that_cannot_be_reported_is_tried_each_minute_and_not_each_time() {
    let mut known = KnownEvents::new(at(0));
    let mut attempts = Vec::new();
    for second in 0..180 {
        assert!(known.offer_at(failing(), second));
        // The API server is back after two minutes.
        let name = (second >= 120).then_some("a.1");
        let reported = known.report(second, name);
        assert!(reported.iter().all(|(_, name)| name.is_none()));
        attempts.extend(reported.iter().map(|_| second));
    }
    assert_eq!(attempts, [0, 60, 120]);
    // Occurrences before and after the acceptance of the Event are counted together.
    assert!(known.offer_at(failing(), 180));
    assert_eq!(known.report(180, None), [(181, Some("a.1".to_owned()))]);
}

#[test]
fn a_lease_that_changes_hands_all_the_time_makes_a_bounded_number_of_events() {
    let mut known = KnownEvents::new(at(0));
    let mut new = |second: u64| {
        let allowed = known.offer_at(stepped_down(second as i64 + 1), second);
        let reported = known.report(second, Some("a.1"));
        assert_eq!(reported.len(), usize::from(allowed));
        assert!(known.events.len() <= KNOWN_MAX);
        u64::from(allowed)
    };
    let bound = |seconds| u64::from(BURST) + seconds / REFILL_INTERVAL.as_secs() - 1;
    let hour: u64 = (0..3600).map(&mut new).sum();
    assert_eq!(hour, bound(3600));
    // A quiet period does not accumulate more than one burst.
    let burst: u64 = (100_000..100_100).map(new).sum();
    assert_eq!(burst, bound(100));
}
