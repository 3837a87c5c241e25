use super::*;

fn at(seconds: u64) -> BootTime {
    BootTime::from_nanos(0) + Duration::from_secs(1_000 + seconds)
}

/// Sorts a renewal failure, and remembers a new one under this name.
fn renewal_failed(
    memory: &mut ReportedEvents,
    name: Option<&str>,
    times: u32,
    second: u64,
) -> Sorted {
    let (reason, text) = ("RenewalFailing", "no answer");
    let sorted = memory.sort(reason, text, times, at(second));
    if sorted == Sorted::New {
        memory.remember(reason, text.to_owned(), name, times, at(second));
    }
    sorted
}

#[test]
fn a_renewal_that_fails_each_second_is_one_event_and_a_count_a_minute() {
    let mut memory = ReportedEvents::new(at(0));
    let mut requests = Vec::new();
    for second in 0..300 {
        match renewal_failed(&mut memory, Some("a.1"), 1, second) {
            Sorted::New => requests.push((second, 1)),
            Sorted::Again { name, count } => {
                assert_eq!(name, "a.1");
                requests.push((second, count));
            }
            Sorted::Counted => {}
            Sorted::TooMany => panic!("a count is no new Event"),
        }
    }
    let expected = [(0, 1), (60, 61), (120, 121), (180, 181), (240, 241)];
    assert_eq!(requests, expected);
}

#[test]
fn a_repetition_after_a_while_is_another_event() {
    let mut memory = ReportedEvents::new(at(0));
    assert_eq!(memory.sort("A", "x", 1, at(0)), Sorted::New);
    memory.remember("A", "x".to_owned(), Some("a.1"), 1, at(0));
    assert_eq!(memory.sort("A", "y", 1, at(1)), Sorted::New, "other words");
    assert_eq!(memory.sort("A", "x", 1, at(600)), Sorted::New);
}

#[test]
fn an_event_that_was_not_accepted_is_reported_anew() {
    let mut memory = ReportedEvents::new(at(0));
    assert_eq!(memory.sort("A", "x", 1, at(0)), Sorted::New);
    assert_eq!(memory.sort("A", "x", 1, at(1)), Sorted::New);
}

#[test]
fn a_renewal_failure_that_cannot_be_reported_is_tried_each_minute_and_not_each_time() {
    let mut memory = ReportedEvents::new(at(0));
    let mut attempts = Vec::new();
    for second in (0..180).step_by(3) {
        // The API server is back after two minutes.
        let name = (second >= 120).then_some("a.1");
        match renewal_failed(&mut memory, name, 3, second) {
            Sorted::New => attempts.push(second),
            Sorted::Counted => {}
            other => panic!("{second}: {other:?}"),
        }
    }
    assert_eq!(attempts, [0, 60, 120]);
    // Occurrences before the Event was accepted count together with later ones.
    let again = memory.sort("RenewalFailing", "no answer", 3, at(180));
    let name = "a.1".to_owned();
    assert_eq!(again, Sorted::Again { name, count: 183 });
}

#[test]
fn a_lease_that_changes_hands_all_the_time_makes_a_bounded_number_of_events() {
    let mut memory = ReportedEvents::new(at(0));
    let mut new = |second| {
        let (reason, text) = ("LeaderElected", format!("token {second}"));
        let sorted = memory.sort(reason, &text, 1, at(second));
        if sorted == Sorted::New {
            memory.remember(reason, text, Some("a.1"), 1, at(second));
        } else {
            assert_eq!(sorted, Sorted::TooMany);
        }
        assert!(memory.reported.len() <= REMEMBERED_MAX);
        u64::from(sorted == Sorted::New)
    };
    let bound = |seconds| u64::from(BURST) + seconds / REFILL_INTERVAL.as_secs() - 1;
    let hour: u64 = (0..3600).map(&mut new).sum();
    assert_eq!(hour, bound(3600));
    // A pause does not accumulate more than one burst.
    let burst: u64 = (100_000..100_100).map(new).sum();
    assert_eq!(burst, bound(100));
}
