//! Tests each rule of the guard by itself, then all rules with random histories.

use proptest::prelude::*;

use super::*;

const TERM: i32 = 15;
const INT: i32 = 2;

fn at(second: u64) -> BootTime {
    BootTime::from_nanos(second * 1_000_000_000)
}

fn terms(valid_until: u64) -> Terms {
    Terms {
        valid_until: at(valid_until),
        kill_at: at(valid_until + 3),
    }
}

fn order(valid_until: u64) -> DesiredState {
    DesiredState::run(terms(valid_until))
}

fn stopping(valid_until: u64, kill_at: u64) -> DesiredState {
    let stop = Stop {
        signal: INT,
        kill_at: at(kill_at),
    };
    order(valid_until).stopped(stop)
}

fn decide(policy: &mut DeadlinePolicy, now: u64) -> Option<Action> {
    policy.handle(at(now), PolicyInput::Time);
    policy.next_action()
}

/// Returns a guard whose CMD starts at second 1, has its deadline at second 10, and is killed at
/// 13.
fn running() -> DeadlinePolicy {
    running_with(PolicyOptions::new(terms(10), TERM))
}

fn running_with(options: PolicyOptions) -> DeadlinePolicy {
    let mut guard = DeadlinePolicy::new(options);
    assert_eq!(decide(&mut guard, 1), Some(Action::Start));
    guard
}

#[test]
fn cmd_starts_only_before_its_deadline() {
    let mut guard = DeadlinePolicy::new(PolicyOptions::new(terms(10), TERM));
    assert!(guard.next_wakeup().unwrap() <= at(0), "judged at once");
    assert_eq!(decide(&mut guard, 10), Some(Action::Refuse));
    assert_eq!(guard.next_wakeup(), None);
}

#[test]
fn an_order_withdrawn_before_the_start_starts_nothing() {
    for unwanted in [
        PolicyInput::Closed,
        PolicyInput::Order(stopping(10, 10)),
        PolicyInput::Order(order(10).killed()),
    ] {
        let mut guard = DeadlinePolicy::new(PolicyOptions::new(terms(10), TERM));
        guard.handle(at(1), unwanted);
        assert_eq!(decide(&mut guard, 1), Some(Action::Refuse), "{unwanted:?}");
    }
}

#[test]
fn at_the_deadline_cmd_is_asked_to_end_and_after_the_grace_it_is_killed() {
    let mut guard = running();
    assert_eq!(guard.next_wakeup(), Some(at(10)));
    assert_eq!(decide(&mut guard, 9), None);
    assert_eq!(decide(&mut guard, 10), Some(Action::Signal(TERM)));
    assert_eq!(guard.next_wakeup(), Some(at(13)));
    assert_eq!(decide(&mut guard, 12), None);
    assert_eq!(decide(&mut guard, 13), Some(Action::Kill));
    assert!(guard.killed());
    assert_eq!(guard.next_wakeup(), None, "the guard repeats the kill");
}

#[test]
fn one_that_wakes_late_kills_at_once() {
    let mut guard = running();
    assert_eq!(decide(&mut guard, 40), Some(Action::Kill));
}

#[test]
fn a_renewal_moves_the_deadline() {
    let mut guard = running();
    guard.handle(at(5), PolicyInput::Order(order(15)));
    assert_eq!(guard.next_wakeup(), Some(at(15)));
    assert_eq!(decide(&mut guard, 14), None);
    assert_eq!(decide(&mut guard, 15), Some(Action::Signal(TERM)));
}

#[test]
fn all_that_was_sent_is_read_before_it_is_judged() {
    let mut guard = running();
    // The guard slept from second 2 to 12; the last record was sent at second 8.
    guard.handle(at(12), PolicyInput::Order(order(11)));
    guard.handle(at(12), PolicyInput::Order(order(18)));
    assert_eq!(decide(&mut guard, 12), None);
}

#[test]
fn a_deadline_that_passed_is_final() {
    let mut guard = running();
    assert_eq!(decide(&mut guard, 10), Some(Action::Signal(TERM)));
    guard.handle(at(11), PolicyInput::Order(order(30)));
    assert!(guard.expired());
    assert_eq!(decide(&mut guard, 11), None);
    assert_eq!(decide(&mut guard, 13), Some(Action::Kill));
}

#[test]
fn a_deadline_that_passed_during_a_graceful_stop_is_final_too() {
    let mut guard = running();
    guard.handle(at(5), PolicyInput::Order(stopping(10, 60)));
    assert_eq!(decide(&mut guard, 5), Some(Action::Signal(INT)));
    assert_eq!(
        guard.next_wakeup(),
        Some(at(10)),
        "the policy must notice the deadline"
    );
    assert_eq!(decide(&mut guard, 10), None, "CMD was already asked to end");
    guard.handle(at(11), PolicyInput::Order(stopping(30, 60)));
    assert_eq!(decide(&mut guard, 13), Some(Action::Kill));
}

#[test]
fn a_graceful_stop_lasts_while_it_is_renewed() {
    let mut guard = running();
    guard.handle(at(5), PolicyInput::Order(stopping(10, 25)));
    assert_eq!(decide(&mut guard, 5), Some(Action::Signal(INT)));
    for now in 6..22 {
        guard.handle(at(now), PolicyInput::Order(stopping(now + 5, 25)));
        assert_eq!(decide(&mut guard, now), None, "second {now}");
    }
    guard.handle(at(24), PolicyInput::Order(stopping(40, 25)));
    assert_eq!(decide(&mut guard, 24), None);
    assert_eq!(decide(&mut guard, 25), Some(Action::Kill));
}

#[test]
fn a_stop_is_not_taken_back() {
    let mut guard = running();
    guard.handle(at(5), PolicyInput::Order(stopping(10, 7)));
    guard.handle(at(5), PolicyInput::Order(order(20)));
    assert_eq!(decide(&mut guard, 5), Some(Action::Signal(INT)));
    assert_eq!(decide(&mut guard, 7), Some(Action::Kill));
}

#[test]
fn a_daemon_that_is_gone_ends_cmd_at_once_and_at_the_last_deadline_for_good() {
    let mut guard = running();
    guard.handle(at(4), PolicyInput::Closed);
    assert_eq!(decide(&mut guard, 4), Some(Action::Signal(TERM)));
    assert_eq!(decide(&mut guard, 10), None, "one signal is enough");
    assert_eq!(decide(&mut guard, 13), Some(Action::Kill));
}

#[test]
fn an_order_to_kill_is_carried_out_at_once() {
    let mut guard = running();
    guard.handle(at(4), PolicyInput::Order(order(10).killed()));
    assert_eq!(decide(&mut guard, 4), Some(Action::Kill));
    assert_eq!(decide(&mut guard, 5), None);
}

#[test]
fn descendants_that_outlive_their_leader_get_the_grace_of_a_loss() {
    let mut guard = running();
    guard.handle(at(4), PolicyInput::LeaderEnded);
    assert_eq!(decide(&mut guard, 4), Some(Action::Signal(TERM)));
    assert_eq!(guard.next_wakeup(), Some(at(7)));
    assert_eq!(decide(&mut guard, 7), Some(Action::Kill));
}

/// Returns a guard like [`running`], but descendants may linger for 4 s and then have 2 s to stop.
fn lingering() -> DeadlinePolicy {
    let leftovers = Leftovers {
        linger: Duration::from_secs(4),
        grace: Duration::from_secs(2),
    };
    running_with(PolicyOptions {
        leftovers,
        ..PolicyOptions::new(terms(10), TERM)
    })
}

#[test]
fn descendants_of_a_leader_that_ended_by_itself_may_linger() {
    let mut guard = lingering();
    guard.handle(at(2), PolicyInput::LeaderEnded);
    assert_eq!(decide(&mut guard, 2), None);
    assert!(guard.lingers() && !guard.stop_requested());
    assert_eq!(guard.next_wakeup(), Some(at(6)));
    assert_eq!(decide(&mut guard, 5), None);
    assert_eq!(decide(&mut guard, 6), Some(Action::Signal(TERM)));
    assert!(!guard.lingers());
    assert_eq!(guard.next_wakeup(), Some(at(8)));
    assert_eq!(decide(&mut guard, 8), Some(Action::Kill));
}

#[test]
fn lingering_descendants_are_stopped_at_the_deadline_and_on_request() {
    let mut guard = lingering();
    guard.handle(at(8), PolicyInput::LeaderEnded);
    assert_eq!(decide(&mut guard, 9), None);
    assert_eq!(decide(&mut guard, 10), Some(Action::Signal(TERM)));
    assert_eq!(decide(&mut guard, 13), Some(Action::Kill), "not at 14");
    for request in [PolicyInput::Order(stopping(40, 30)), PolicyInput::Closed] {
        let mut guard = lingering();
        guard.handle(at(2), PolicyInput::LeaderEnded);
        assert_eq!(decide(&mut guard, 2), None);
        guard.handle(at(3), request);
        let signalled = decide(&mut guard, 3);
        assert!(matches!(signalled, Some(Action::Signal(_))), "{request:?}");
    }
}

#[test]
fn after_the_kill_a_guard_does_not_wake_for_descendants_that_lingered() {
    let mut guard = lingering();
    guard.handle(at(2), PolicyInput::LeaderEnded);
    guard.handle(at(3), PolicyInput::Order(order(40).killed()));
    assert_eq!(decide(&mut guard, 3), Some(Action::Kill));
    assert_eq!(
        guard.next_wakeup(),
        Some(at(40)),
        "the policy must notice the deadline"
    );
    assert_eq!(decide(&mut guard, 40), None);
    assert_eq!(guard.next_wakeup(), None);
}

#[test]
fn the_stop_signal_may_go_to_the_leader_alone() {
    let mut guard = running_with(PolicyOptions {
        stop_scope: StopScope::Main,
        ..PolicyOptions::new(terms(10), TERM)
    });
    guard.handle(at(4), PolicyInput::Order(stopping(40, 30)));
    assert_eq!(decide(&mut guard, 4), Some(Action::SignalMain(INT)));
    assert_eq!(decide(&mut guard, 5), None, "one signal is enough");
    guard.handle(at(6), PolicyInput::LeaderEnded);
    let rest = decide(&mut guard, 6);
    assert_eq!(
        rest,
        Some(Action::Signal(INT)),
        "the descendants left behind"
    );
    assert_eq!(decide(&mut guard, 7), None);
    assert_eq!(decide(&mut guard, 30), Some(Action::Kill));
}

#[test]
fn descendants_whose_leader_ended_by_itself_are_signalled_in_each_scope() {
    let mut guard = running_with(PolicyOptions {
        stop_scope: StopScope::Main,
        ..PolicyOptions::new(terms(10), TERM)
    });
    guard.handle(at(4), PolicyInput::LeaderEnded);
    assert_eq!(decide(&mut guard, 4), Some(Action::Signal(TERM)));
    assert_eq!(decide(&mut guard, 5), None);
}

#[test]
fn descendants_of_a_leader_that_was_asked_to_end_keep_their_time() {
    let mut guard = running();
    guard.handle(at(4), PolicyInput::Order(stopping(40, 30)));
    assert_eq!(decide(&mut guard, 4), Some(Action::Signal(INT)));
    guard.handle(at(5), PolicyInput::LeaderEnded);
    assert_eq!(decide(&mut guard, 29), None);
    assert_eq!(decide(&mut guard, 30), Some(Action::Kill));
}

#[test]
fn when_all_are_gone_nothing_is_left_to_do() {
    let mut guard = running();
    guard.handle(at(4), PolicyInput::LeaderEnded);
    guard.handle(at(4), PolicyInput::Gone);
    assert_eq!(decide(&mut guard, 4), None);
    assert_eq!(decide(&mut guard, 60), None);
    assert_eq!(guard.next_wakeup(), None);
}

fn any_input() -> impl Strategy<Value = PolicyInput> {
    let any_order = (1..30_u64, proptest::option::of(1..60_u64), 0..20_u8).prop_map(
        |(valid_until, stop_at, kill)| {
            let plain = order(valid_until);
            let stop = stop_at.and_then(|kill_at| stopping(valid_until, kill_at).stop);
            PolicyInput::Order(DesiredState {
                stop,
                kill: kill == 0,
                ..plain
            })
        },
    );
    prop_oneof![
        8 => any_order,
        1 => Just(PolicyInput::Closed),
        1 => Just(PolicyInput::LeaderEnded),
        8 => Just(PolicyInput::Time),
    ]
}

proptest! {
    /// For any inputs, the guard applies the newest terms that it has read in time: it sends CMD
    /// the stop signal by their deadline, and kills CMD by the end of their grace period.
    #[test]
    fn no_history_leaves_cmd_alive_after_its_deadline(
        history in proptest::collection::vec((0..3_u64, any_input()), 1..60),
        linger in 0..20_u64,
        scope in prop_oneof![Just(StopScope::Group), Just(StopScope::Main)],
    ) {
        let leftovers = Leftovers {
            linger: Duration::from_secs(linger),
            grace: Duration::from_secs(3),
        };
        let mut guard = DeadlinePolicy::new(PolicyOptions {
            stop_scope: scope,
            leftovers,
            ..PolicyOptions::new(terms(10), TERM)
        });
        let mut now = 0;
        let mut current = terms(10);
        let mut lost = false;
        let mut started = false;
        let mut asked = 0;
        let mut kills = 0;
        for (pause, input) in history {
            now += pause;
            if let PolicyInput::Order(order) = input
                && !lost
            {
                current = order.terms;
            }
            guard.handle(at(now), input);
            if input != PolicyInput::Time {
                continue;
            }
            lost |= at(now) >= current.valid_until;
            match guard.next_action() {
                Some(Action::Start) => {
                    prop_assert!(!lost && !started);
                    started = true;
                }
                Some(Action::Refuse) => prop_assert!(!started),
                Some(Action::SignalMain(_)) => asked += 1,
                // The second signal goes to the descendants.
                Some(Action::Signal(_)) if asked == 1 && scope == StopScope::Main => {}
                Some(Action::Signal(_)) => asked += 1,
                Some(Action::Kill) => kills += 1,
                None => {}
            }
            prop_assert!(asked <= 1 && kills <= 1);
            if started && lost {
                prop_assert!(asked + kills > 0, "CMD was not asked to end at {now}");
            }
            if started && lost && at(now) >= current.kill_at {
                prop_assert_eq!(kills, 1, "alive at {}", now);
            }
        }
    }
}

#[test]
fn a_second_stop_may_take_time_away_and_never_gives_any() {
    let stop = |kill_at| stopping(50, kill_at).stop.expect("it stops");
    let stopped = order(50).stopped(stop(20));
    assert_eq!(stopped, stopping(50, 20));
    assert_eq!(stopped.stopped(stop(60)), stopped);
    assert_eq!(stopped.stopped(stop(10)), stopping(50, 10));
}

#[test]
fn the_orders_of_an_election_give_time_only_before_a_loss() {
    let graceful = stopping(50, 30).stop.expect("it stops");
    let state = order(10).ordered(OrderKind::Extend(terms(50)), graceful);
    assert!(state == order(50) && state.runs());
    let stopped = state.ordered(OrderKind::Stop, graceful);
    assert!(stopped == stopping(50, 30) && !stopped.runs());
    assert_eq!(stopped.kill_at(), at(30));
    let renewed = stopped.ordered(OrderKind::Extend(terms(60)), graceful);
    assert_eq!(renewed, stopping(60, 30));
    let lost = renewed.ordered(OrderKind::Lost { kill_at: at(20) }, graceful);
    assert_eq!(
        lost,
        stopping(60, 20).lost(stopping(60, 20).stop.expect("it stops"))
    );
    let revived = lost.ordered(OrderKind::Extend(terms(90)), graceful);
    assert_eq!(revived, lost);
    assert_eq!(lost.merged(order(90)), lost);
    assert_eq!(order(40).killed().merged(lost), lost.killed());
}
