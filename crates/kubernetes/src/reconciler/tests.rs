//! Goal: verify when the label is written. Method: simulated time; each case is a sequence of
//! events that concern one label.

use super::*;

const MINUTE: Duration = Duration::from_secs(60);
const REFUSED: ApiError = ApiError {
    what: "forbidden",
    detail: None,
    status: Some(403),
    may_land: false,
    retry: ApiRetry::Person,
};
const UNREACHABLE: ApiError = ApiError {
    what: "the API server cannot be reached",
    detail: None,
    status: None,
    may_land: false,
    retry: ApiRetry::Again,
};

fn at(seconds: f64) -> BootTime {
    BootTime::from_nanos(1_000_000_000_000) + Duration::from_secs_f64(seconds)
}

fn succeed(reconciler: &mut Reconciler, label: Label, now: BootTime) {
    reconciler.sent(label, now);
    reconciler.acknowledged();
}

/// Sends a write that fails immediately. The wait after the failure has no jitter.
fn fail(reconciler: &mut Reconciler, label: Label, now: BootTime, error: &ApiError) {
    reconciler.sent(label, now);
    reconciler.failed(error, now, 0);
}

fn refused(label: Label, error: &ApiError) -> Reconciler {
    let mut reconciler = Reconciler::new(MINUTE);
    fail(&mut reconciler, label, at(0.0), error);
    reconciler
}

#[track_caller]
fn assert_writes(reconciler: &mut Reconciler, label: Label, now: BootTime) {
    assert_eq!(reconciler.step(label, now), LabelStep::Write(label));
}

/// Fails eight writes with this error. Returns the wait after each write in milliseconds, and the
/// time of the next write.
fn waits(reconciler: &mut Reconciler, error: &ApiError) -> ([u128; 8], BootTime) {
    let mut now = at(0.0);
    let waits = [(); 8].map(|()| {
        fail(reconciler, Label::Leader, now, error);
        let next = next_write(reconciler, Label::Leader, now);
        next.since(std::mem::replace(&mut now, next)).as_millis()
    });
    (waits, now)
}

fn written(label: Label, sent: f64) -> Reconciler {
    let mut reconciler = Reconciler::new(MINUTE);
    succeed(&mut reconciler, label, at(sent));
    reconciler
}

/// Returns the time of the next write of `wanted` after `now` if nothing else happens.
fn next_write(reconciler: &mut Reconciler, wanted: Label, now: BootTime) -> BootTime {
    match reconciler.step(wanted, now) {
        LabelStep::Write(_) => now,
        LabelStep::Wait(at) => {
            assert_eq!(reconciler.step(wanted, at), LabelStep::Write(wanted));
            at
        }
        LabelStep::GiveUp => panic!("a write is under way"),
    }
}

#[test]
fn the_first_write_and_a_change_are_at_once() {
    let mut reconciler = Reconciler::new(MINUTE);
    assert_writes(&mut reconciler, Label::Follower, at(0.0));
    let mut reconciler = written(Label::Follower, 0.0);
    assert_writes(&mut reconciler, Label::Leader, at(0.1));
}

#[test]
fn a_label_that_is_right_is_written_again_each_minute_from_send_to_send() {
    let mut reconciler = written(Label::Leader, 0.0);
    let mut writes = 0;
    let mut now = at(1.0);
    while now < at(600.0) {
        now = next_write(&mut reconciler, Label::Leader, now);
        succeed(&mut reconciler, Label::Leader, now);
        writes += 1;
    }
    assert_eq!((writes, now), (10, at(600.0)));
}

#[test]
fn one_write_at_a_time_and_then_the_newest_value() {
    let mut reconciler = Reconciler::new(MINUTE);
    reconciler.sent(Label::Leader, at(0.0));
    // While a write is in flight, changes of the wanted value are not queued.
    for wanted in [Label::Follower, Label::Leader, Label::Follower] {
        assert!(matches!(
            reconciler.step(wanted, at(0.05)),
            LabelStep::Wait(_)
        ));
    }
    reconciler.acknowledged();
    assert_writes(&mut reconciler, Label::Follower, at(0.06));
}

#[test]
fn a_hanging_write_with_a_wrong_value_is_given_up_soon_and_a_right_one_late() {
    let mut reconciler = Reconciler::new(MINUTE);
    reconciler.sent(Label::Leader, at(0.0));
    let give_way = at(0.0) + GIVE_WAY_AFTER;
    for (label, now, expected) in [
        (Label::Follower, at(0.0), LabelStep::Wait(give_way)),
        (Label::Follower, give_way, LabelStep::GiveUp),
        (
            Label::Leader,
            at(4.0),
            LabelStep::Wait(at(0.0) + REQUEST_TIME_MAX),
        ),
        (Label::Leader, at(5.0), LabelStep::GiveUp),
    ] {
        assert_eq!(reconciler.step(label, now), expected, "{label:?}");
    }
    reconciler.failed(&ApiError::NO_ANSWER, at(2.0), 0);
    // The demotion does not wait for the backoff of the promotion.
    assert_writes(&mut reconciler, Label::Follower, at(2.0));
}

#[test]
fn a_write_that_may_still_land_is_followed_by_others() {
    let mut reconciler = Reconciler::new(MINUTE);
    reconciler.sent(Label::Leader, at(0.0));
    reconciler.failed(&ApiError::NO_ANSWER, at(1.0), 0);
    let mut now = at(1.0);
    let mut times = Vec::new();
    while now < at(200.0) {
        now = next_write(&mut reconciler, Label::Follower, now);
        succeed(&mut reconciler, Label::Follower, now);
        times.push(now);
    }
    let settled = times.partition_point(|time| *time < at(1.0) + LANDS_WITHIN);
    let gaps = times.windows(2).map(|pair| pair[1].since(pair[0]));
    for (index, gap) in gaps.enumerate() {
        let expected = if index < settled {
            SETTLING_INTERVAL
        } else {
            MINUTE
        };
        assert_eq!(gap, expected, "{index}: {times:?}");
    }
    assert!(settled < times.len() - 1, "it settles: {times:?}");
}

#[test]
fn a_definitely_refused_write_needs_no_further_writes() {
    let mut reconciler = Reconciler::new(MINUTE);
    reconciler.sent(Label::Leader, at(0.0));
    reconciler.failed(&REFUSED, at(0.1), 0);
    succeed(&mut reconciler, Label::Follower, at(1.0));
    assert_eq!(
        next_write(&mut reconciler, Label::Follower, at(1.1)),
        at(61.0)
    );
}

#[test]
fn attempts_at_an_api_server_that_is_gone_are_at_growing_intervals_up_to_five_seconds() {
    let mut reconciler = Reconciler::new(MINUTE);
    let (waits, now) = waits(&mut reconciler, &UNREACHABLE);
    assert_eq!(waits, [250, 500, 1000, 2000, 4000, 5000, 5000, 5000]);
    succeed(&mut reconciler, Label::Leader, now);
    fail(&mut reconciler, Label::Leader, at(90.0), &UNREACHABLE);
    let next = next_write(&mut reconciler, Label::Leader, at(90.0));
    assert_eq!(next, at(90.25), "a success resets the backoff");
}

#[test]
fn a_refusal_that_needs_an_operator_is_retried_each_minute_and_once_per_change() {
    let mut reconciler = refused(Label::Leader, &REFUSED);
    assert_eq!(
        next_write(&mut reconciler, Label::Leader, at(0.0)),
        at(60.0)
    );
    assert_eq!(
        next_write(&mut reconciler, Label::Follower, at(1.0)),
        at(1.0)
    );
    fail(&mut reconciler, Label::Follower, at(1.0), &REFUSED);
    assert_eq!(
        next_write(&mut reconciler, Label::Follower, at(1.0)),
        at(61.0)
    );
}

/// Returns the answer "too many requests" with a requested pause in seconds.
fn asked(seconds: u64) -> ApiError {
    ApiError {
        what: "the API server is throttling requests",
        detail: None,
        status: Some(429),
        may_land: false,
        retry: ApiRetry::After(Duration::from_secs(seconds)),
    }
}

#[test]
fn a_pause_requested_by_the_api_server_applies_to_both_labels_for_a_limited_time() {
    for (seconds, obeyed) in [(7, 7.0), (3600, 60.0), (0, 0.25)] {
        for wanted in [Label::Follower, Label::Leader] {
            let mut reconciler = refused(Label::Follower, &asked(seconds));
            let next = next_write(&mut reconciler, wanted, at(0.0));
            assert_eq!(next, at(obeyed), "{seconds} {wanted:?}");
        }
    }
}

#[test]
fn repeated_pauses_of_a_second_back_off() {
    let (waits, _) = waits(&mut Reconciler::new(MINUTE), &asked(1));
    assert_eq!(waits, [1000, 1000, 1000, 2000, 4000, 5000, 5000, 5000]);
}

#[test]
fn pods_that_are_asked_for_the_same_pause_come_back_one_after_the_other_and_none_early() {
    let back = |random| {
        let mut reconciler = Reconciler::new(MINUTE);
        reconciler.sent(Label::Follower, at(0.0));
        reconciler.failed(&asked(10), at(0.0), random);
        next_write(&mut reconciler, Label::Follower, at(0.0))
    };
    assert_eq!(back(0), at(10.0));
    assert_eq!(back(51), at(10.4));
    assert_eq!(back(255), at(12.0));
}

#[test]
fn behind_an_api_server_that_hangs_two_writes_are_ten_seconds_apart_at_most() {
    let mut reconciler = Reconciler::new(MINUTE);
    let mut sent = at(0.0);
    for failure in 1..12 {
        reconciler.sent(Label::Leader, sent);
        let given_up = sent + REQUEST_TIME_MAX;
        assert_eq!(reconciler.step(Label::Leader, given_up), LabelStep::GiveUp);
        reconciler.failed(&ApiError::NO_ANSWER, given_up, 0);
        let next = next_write(&mut reconciler, Label::Leader, given_up);
        assert!(next <= sent + Duration::from_secs(10), "{failure}");
        sent = next;
    }
}

#[test]
fn a_demotion_is_attempted_once_whatever_pause_was_asked_for() {
    let mut reconciler = refused(Label::Leader, &asked(60));
    assert_eq!(
        next_write(&mut reconciler, Label::Leader, at(0.0)),
        at(60.0)
    );
    assert_eq!(
        next_write(&mut reconciler, Label::Follower, at(1.0)),
        at(1.0)
    );
    fail(&mut reconciler, Label::Follower, at(1.0), &asked(60));
    assert_eq!(
        next_write(&mut reconciler, Label::Follower, at(1.0)),
        at(61.0)
    );

    // The label must be set to `follower` even if the pause kept `leader` from being written.
    assert_eq!(
        next_write(&mut reconciler, Label::Leader, at(2.0)),
        at(61.0)
    );
    assert_eq!(
        next_write(&mut reconciler, Label::Follower, at(3.0)),
        at(3.0)
    );
}

#[test]
fn a_demotion_behind_a_promotion_that_is_answered_by_a_pause_is_attempted() {
    let mut reconciler = Reconciler::new(MINUTE);
    reconciler.sent(Label::Leader, at(0.0));
    assert!(matches!(
        reconciler.step(Label::Follower, at(0.01)),
        LabelStep::Wait(_)
    ));
    reconciler.failed(&asked(60), at(0.02), 0);
    assert_eq!(
        next_write(&mut reconciler, Label::Follower, at(0.02)),
        at(0.02)
    );
}

#[test]
fn a_promotion_in_flight_is_never_reported_as_follower() {
    let mut reconciler = written(Label::Follower, 0.0);
    assert!(!reconciler.state().may_say_leader());
    reconciler.sent(Label::Follower, at(60.0));
    assert!(
        !reconciler.state().may_say_leader(),
        "repairing the label changes nothing"
    );
    reconciler.acknowledged();
    reconciler.sent(Label::Leader, at(61.0));
    assert!(
        reconciler.state().may_say_leader(),
        "the write may have taken effect"
    );
    reconciler.failed(&ApiError::NO_ANSWER, at(62.0), 0);
    assert!(reconciler.state().may_say_leader());
    reconciler.sent(Label::Follower, at(62.0));
    assert!(reconciler.state().may_say_leader(), "not yet acknowledged");
    reconciler.acknowledged();
    assert_eq!(
        reconciler.state(),
        LabelState::Acknowledged(Label::Follower)
    );
}

#[test]
fn a_pod_that_is_gone_shows_nothing() {
    let mut reconciler = written(Label::Leader, 0.0);
    reconciler.sent(Label::Follower, at(1.0));
    let gone = ApiError {
        what: "the pod does not exist",
        detail: None,
        status: Some(404),
        may_land: false,
        retry: ApiRetry::NewPod,
    };
    reconciler.failed(&gone, at(1.0), 0);
    assert_eq!(reconciler.state(), LabelState::NoPod);
    assert!(!reconciler.state().may_say_leader());
    assert_eq!(
        next_write(&mut reconciler, Label::Follower, at(1.0)),
        at(61.0)
    );
}
