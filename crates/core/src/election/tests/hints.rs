//! Followers that use hints instead of a change stream. They read just after each expected renewal.

use super::harness::*;
use crate::election::*;

pub(super) const INTERVAL: u64 = 3;
/// Maximum time from a renewal until a follower sees it.
pub(super) const LATE_MAX: Duration = Duration::from_millis(12);

use std::time::Duration;

/// Returns a leader `a`, a follower `b` of hints, and the store. `a` has led since 0 s, and `b` has
/// run since 1.234 s.
pub(super) fn leader_and_reader() -> (Node, Node, Stored) {
    let (a, mut stored) = leader("a", at(0));
    let b = reader("b", at(0) + millis(1_234), &mut stored);
    (a, b, stored)
}

fn reader(name: &str, now: BootTime, stored: &mut Stored) -> Node {
    let mut node = Node::served(name, now, stored);
    node.input(now, Input::Watch(Watch::HintsOpened));
    node.serve(now, stored);
    node
}

/// Advances both candidates to `until`, and answers each call immediately. Returns the longest
/// delay before `b` saw a renewal of `a`.
pub(super) fn together(
    a: &mut Node,
    b: &mut Node,
    until: BootTime,
    stored: &mut Stored,
) -> Duration {
    let delays = renewals_seen(a, b, until, stored, |_| Duration::ZERO);
    delays.into_iter().max().unwrap_or_default()
}

/// Advances both candidates to `until`. The store takes `slowness` to apply and answer each renewal
/// of `a`, given the number of the renewal, and answers other calls immediately. Returns the delay
/// before `b` saw each renewal.
fn renewals_seen(
    a: &mut Node,
    b: &mut Node,
    until: BootTime,
    stored: &mut Stored,
    slowness: impl Fn(u64) -> Duration,
) -> Vec<Duration> {
    let (mut delays, mut renewals, mut applies_at) = (Vec::new(), 0, None);
    // The revision that `b` has not seen, and when it was stored.
    let mut unseen = None;
    loop {
        let of_b = b.election.next_wakeup();
        let of_a = applies_at.or(a.election.next_wakeup());
        let Some(now) = of_a.into_iter().chain(of_b).min().filter(|at| *at <= until) else {
            return delays;
        };
        if of_a == Some(now) {
            if applies_at.take().is_none() {
                a.tick(now);
                renewals += 1;
                applies_at = Some(now + slowness(renewals)).filter(|at| *at > now);
            }
            if applies_at.is_none() {
                a.serve(now, stored);
                unseen = Some((stored.lease().revision, now));
            }
        }
        if of_b == Some(now) {
            b.tick(now);
            b.serve(now, stored);
        }
        let view = b.election.contender.view();
        if let Some((revision, stored_at)) = unseen
            && view.revision() == Some(revision)
        {
            delays.push(view.seen.since(stored_at));
            unseen = None;
        }
    }
}

#[test]
fn i10_with_hints_renewals_are_seen_as_they_come() {
    let (mut a, mut b, mut stored) = leader_and_reader();
    together(&mut a, &mut b, at(12), &mut stored);
    let reads = b.count("read");
    let late = together(&mut a, &mut b, at(612), &mut stored);
    assert!(late <= LATE_MAX, "{late:?}");
    let reads = b.count("read") - reads;
    assert!((200..=250).contains(&reads), "{reads} for 200 renewals");
    assert_eq!(b.streams_reopened, 0, "hints report no renewals");
}

#[test]
fn slow_renewals_hardly_delay_the_reads_of_the_others() {
    let (mut a, mut b, mut stored) = leader_and_reader();
    together(&mut a, &mut b, at(12), &mut stored);
    let reads = b.count("read");
    let slowness = |number: u64| match number.is_multiple_of(20) {
        true => millis(25),
        false => Duration::from_micros(number * 700 % 3_000),
    };
    let seen = renewals_seen(&mut a, &mut b, at(612), &mut stored, slowness);
    let mean = seen.iter().sum::<Duration>() / u32::try_from(seen.len()).expect("few");
    assert!(mean <= millis(6), "{mean:?}");
    assert!(seen.iter().all(|delay| *delay <= millis(40)), "{seen:?}");
    let reads = b.count("read") - reads;
    assert!(reads <= 300, "{reads} for {} renewals", seen.len());
}

#[test]
fn a_follower_that_has_just_started_soon_knows_the_phase() {
    let (mut a, mut b, mut stored) = leader_and_reader();
    let reads = b.count("read");
    let seen = renewals_seen(&mut a, &mut b, at(12), &mut stored, |_| Duration::ZERO);
    assert!(seen[0] <= millis(190), "{seen:?}");
    assert!(
        seen[1] <= millis(15) && seen[2..].iter().all(|it| *it <= millis(5)),
        "{seen:?}"
    );
    let reads = b.count("read") - reads;
    assert!(reads <= 36, "{reads}");
}

#[test]
fn the_phase_is_still_known_when_the_cursor_was_lost() {
    let (mut a, mut b, mut stored) = leader_and_reader();
    together(&mut a, &mut b, at(31), &mut stored);
    b.input(at(31), Input::Watch(Watch::Lost));
    b.serve(at(31), &mut stored);
    together(&mut a, &mut b, at(32), &mut stored);
    b.input(at(32), Input::Watch(Watch::HintsOpened));
    b.serve(at(32), &mut stored);
    let reads = b.count("read");
    let late = together(&mut a, &mut b, at(44), &mut stored);
    assert!(late <= LATE_MAX, "{late:?}");
    let reads = b.count("read") - reads;
    assert!(reads <= 8, "{reads} for 4 renewals");
}

#[test]
fn the_hint_of_an_acquisition_shows_the_phase_of_the_renewals() {
    let (mut a, mut b, mut stored) = leader_and_reader();
    let mut c = reader("c", at(2), &mut stored);
    together(&mut a, &mut c, at(31), &mut stored);
    a.release(at(31), Input::Shutdown, &mut stored);
    b.input(at(31), Input::Watch(Watch::Hint));
    b.serve(at(31), &mut stored);
    assert!(b.leads(at(31)), "{:?}", b.sent);
    c.input(at(31), Input::Watch(Watch::Hint));
    c.serve(at(31), &mut stored);
    let reads = c.count("read");
    let seen = renewals_seen(&mut b, &mut c, at(38), &mut stored, |_| Duration::ZERO);
    assert!(seen.iter().all(|delay| *delay <= millis(5)), "{seen:?}");
    let reads = c.count("read") - reads;
    assert!(reads <= 16, "{reads} for {} renewals", seen.len());
}

#[test]
fn i10_with_hints_a_follower_takes_over_when_the_lease_ends() {
    let (mut a, mut b, mut stored) = leader_and_reader();
    together(&mut a, &mut b, at(31), &mut stored);
    // The last renewal was sent at second 30.
    let expired = at(30 + 24);
    let reads = b.count("read");
    b.run(expired - millis(1), &mut stored);
    assert!(!b.leads(expired), "{:?}", b.sent);
    b.run(expired + LATE_MAX, &mut stored);
    assert!(b.leads(expired + LATE_MAX), "{:?}", b.sent.last());
    let reads = b.count("read") - reads;
    assert!(reads < 40, "{reads} reads without a renewal");
}

#[test]
fn an_estimate_that_is_out_of_phase_corrects_itself() {
    for (hurry, late) in [(at(100), 400), (at(101), 1_700), (at(102), 2_950)] {
        let (mut a, mut b, mut stored) = leader_and_reader();
        together(&mut a, &mut b, hurry, &mut stored);
        // A new primary makes the leader renew immediately, which shifts the schedule of all later
        // renewals.
        let renewed = hurry + millis(late);
        together(&mut a, &mut b, renewed, &mut stored);
        a.input(renewed, Input::PrimaryChanged);
        a.serve(renewed, &mut stored);
        together(&mut a, &mut b, renewed + seconds(60), &mut stored);
        let late = together(&mut a, &mut b, renewed + seconds(120), &mut stored);
        assert!(late <= LATE_MAX, "{late:?}");
    }
}

#[test]
fn a_declared_interval_is_the_one_that_is_read_at() {
    let candidate = Candidate {
        tunables: with_timings(TimingSettings {
            renew_interval: seconds(5),
            ..TimingSettings::default()
        }),
        ..candidate("a")
    };
    let mut stored = Stored::default();
    let mut a = Node::begin(candidate, at(0));
    a.serve(at(0), &mut stored);
    stored.holder_mut().renew_interval = Some(seconds(5));
    let mut b = reader("b", at(1), &mut stored);
    together(&mut a, &mut b, at(30), &mut stored);
    let reads = b.count("read");
    let late = together(&mut a, &mut b, at(330), &mut stored);
    assert!(late <= LATE_MAX, "{late:?}");
    let reads = b.count("read") - reads;
    assert!((60..=90).contains(&reads), "{reads} for 60 renewals");
}

#[test]
fn an_absurd_declared_interval_is_ignored() {
    let (_, _, mut stored) = leader_and_reader();
    for (declared, valid) in [(seconds(3), true), (millis(1), false), (seconds(13), false)] {
        stored.holder_mut().renew_interval = Some(declared);
        let every = stored.holder_mut().renewals_every();
        assert_eq!(every, valid.then_some(declared));
    }
}

#[test]
fn i8_a_hint_makes_a_follower_read_and_decides_nothing() {
    let (mut a, mut b, mut stored) = leader_and_reader();
    together(&mut a, &mut b, at(31), &mut stored);
    let sent = b.sent.len();
    for _ in 0..3 {
        b.input(at(31), Input::Watch(Watch::Hint));
    }
    assert_eq!(b.waiting(), ["read"], "one at a time");
    b.serve(at(31), &mut stored);
    assert_eq!(b.sent_after(sent), ["read", "read"], "a false hint");

    a.release(at(31), Input::Shutdown, &mut stored);
    b.input(at(31), Input::Watch(Watch::Hint));
    b.serve(at(31), &mut stored);
    assert!(b.leads(at(31)), "{:?}", b.sent);
}

#[test]
fn a_request_is_read_by_the_leader_when_it_is_hinted() {
    let (mut a, mut stored) = leader("a", at(0));
    a.input(at(0), Input::Watch(Watch::HintsOpened));
    a.serve(at(0), &mut stored);
    stored.lease_mut().request = Some(Request {
        kind: RequestKind::StepDown,
        token: stored.lease().token,
    });
    a.input(at(1), Input::Watch(Watch::Hint));
    a.serve(at(1), &mut stored);
    a.assert_role(Role::Stopping, Reason::Requested);
}

#[test]
fn i10_a_lost_hint_is_not_waited_for() {
    let (mut a, mut b, mut stored) = leader_and_reader();
    together(&mut a, &mut b, at(31), &mut stored);
    a.release(at(31), Input::Shutdown, &mut stored);
    b.run(at(31 + INTERVAL), &mut stored);
    assert!(b.leads(at(31 + INTERVAL)), "{:?}", b.sent);
    assert_eq!(b.streams_reopened, 1, "the cursor may be stale");
}

#[test]
fn i10_a_lease_that_is_resumed_without_a_hint_is_noticed() {
    let (mut a, mut b, mut stored) = leader_and_reader();
    stored.lease_mut().paused = true;
    b.input(at(2), Input::Watch(Watch::Hint));
    a.release(at(2), Input::Shutdown, &mut stored);
    b.serve(at(2), &mut stored);
    let reads = b.count("read");
    b.run(at(62), &mut stored);
    assert_eq!(b.role(), Role::Paused);
    let reads = b.count("read") - reads;
    assert!((20..=22).contains(&reads), "{reads} in a minute");
    stored.lease_mut().paused = false;
    b.run(at(62 + INTERVAL), &mut stored);
    assert!(b.leads(at(62 + INTERVAL)), "{:?}", b.sent.last());
}

#[test]
fn i10_hints_without_end_do_not_keep_a_follower_from_taking_over() {
    let (mut a, mut b, mut stored) = leader_and_reader();
    together(&mut a, &mut b, at(31), &mut stored);
    // Another hint arrives before each reply.
    let end = at(30 + 24) + LATE_MAX;
    let mut now = at(31);
    while now < end {
        b.tick(now);
        b.input(now, Input::Watch(Watch::Hint));
        while let Some((call, outcome)) = (!b.calls.is_empty()).then(|| b.perform(&mut stored)) {
            let was_read = b.sent.last().is_some_and(|o| o.as_str() == "read");
            b.reply(now, call, outcome);
            if was_read {
                b.input(now, Input::Watch(Watch::Hint));
                break;
            }
        }
        now = now + millis(5);
    }
    assert!(b.leads(end), "{:?}", b.sent.last());
}

#[test]
fn i10_a_follower_of_hints_whose_reads_fail_polls() {
    let (mut a, mut b, mut stored) = leader_and_reader();
    together(&mut a, &mut b, at(31), &mut stored);
    let reads = b.count("read");
    b.run_cut_off(at(41), &Outcome::Failed);
    let reads = b.count("read") - reads;
    assert!((7..=13).contains(&reads), "{reads} in ten seconds");
    b.run(at(30 + 24) + seconds(1), &mut stored);
    assert!(b.leads(at(30 + 24) + seconds(1)), "{:?}", b.sent.last());
}

#[test]
fn another_primary_and_a_rejected_take_over_open_the_cursor_anew() {
    let (_, mut b, mut stored) = leader_and_reader();
    b.input(at(2), Input::PrimaryChanged);
    assert_eq!(b.streams_reopened, 1);
    b.input(at(2), Input::Watch(Watch::HintsOpened));
    b.serve(at(2), &mut stored);
    b.run(at(1), &mut stored);
    while b.waiting() != ["take_over"] {
        b.serve_reads(b.now(), &mut stored);
        if b.waiting().is_empty() {
            b.wake();
        }
    }
    b.answer_with(b.now(), Outcome::Rejected);
    assert_eq!(b.streams_reopened, 2);
}
