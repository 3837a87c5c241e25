//! Goal: a command never outlives its deadline, even if its guard is killed or frozen. Method: send
//! SIGKILL and SIGSTOP to the guard of a running daemon.

use leasehold::clock::boot_now;
use leasehold::workload::claim_share::Child;
use rustix::process::{Resource, Signal, geteuid};

use leasehold_testbed::skip;

use leasehold_testbed::pid::{exists, is_alive, signal};

use crate::fixture::{Fixture, LONG, SEEN_LATE, STARTS, eventually, millis, terms};
use crate::stand_in::{Plan, deadlines, guard, lock_is_free, recorded_child, sent, wait_for_gone};

/// Starts a command, a process of its group, and a process of another session, all of which ignore
/// SIGTERM.
const FAMILY: &str = "trap '' TERM
    setsid -f sh -c 'echo $$ > away; exec sleep 60'
    sleep 60 &
    echo $! > near
    echo $$ > pid
    while :; do sleep 1; done";

/// A guard can lock its memory if `ulimit -l` is at least this many bytes.
const PROGRAM_MAX: u64 = 1 << 30;

async fn family(fixture: &Fixture) -> [u32; 3] {
    [
        fixture.wait_pid("pid").await,
        fixture.wait_pid("near").await,
        fixture.wait_pid("away").await,
    ]
}

#[tokio::test]
async fn a_killed_guard_is_noticed_at_once_and_the_daemon_ends_the_whole_family() {
    let fixture = Fixture::new();
    let _daemon = Plan::of(FAMILY).start(&fixture);
    let family = family(&fixture).await;
    let guard = guard(&fixture).await;
    let last = sent(&fixture);
    signal(guard, Signal::KILL);
    let told = wait_for_gone(&fixture).await;
    assert!(boot_now() < last.valid_until, "not because of a deadline");
    assert_eq!(family.map(exists), [false; 3]);
    assert!(told.contains("guard_lost: true"), "{told}");
    assert!(told.contains("by_us: true"), "{told}");
    // A separate thread writes the record, so that a hanging disk cannot delay the report. The
    // record may appear later.
    eventually("the daemon records the end", || {
        recorded_child(&fixture) == Child::Gone
    })
    .await;
}

/// When a disk hangs, the guard may have to kill the command without reading its own pages from
/// this disk.
#[tokio::test]
async fn pages_that_a_guard_has_used_stay_in_memory() {
    let fixture = Fixture::new();
    let plan = Plan::of("echo $$ > pid; exec sleep 60");
    let limit = rustix::process::getrlimit(Resource::Memlock).current;
    if !geteuid().is_root() && limit.is_some_and(|bytes| bytes < PROGRAM_MAX) {
        skip("`ulimit -l` is too low to lock a guard in memory");
        return;
    }
    let _daemon = plan.start(&fixture);
    fixture.wait_pid("pid").await;
    let guard = guard(&fixture).await;
    let status = std::fs::read_to_string(format!("/proc/{guard}/status")).unwrap();
    let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:"));
    let locked = locked.unwrap().trim().trim_end_matches(" kB");
    assert!(locked.parse::<u64>().unwrap() > 0, "{status}");
}

#[tokio::test]
async fn a_command_whose_end_was_not_observed_stays_in_the_claim_file() {
    let fixture = Fixture::new();
    let (daemon, pid, guard) = fixture
        .stand_in(Plan::of("echo $$ > pid; exec sleep 60"))
        .await;
    daemon.freeze().await;
    signal(guard, Signal::KILL);
    daemon.kill().await;
    eventually("CMD has ended", || !is_alive(pid)).await;
    eventually("the lock is free", || lock_is_free(&fixture)).await;
    let Child::Running(recorded) = recorded_child(&fixture) else {
        panic!("{:?}", recorded_child(&fixture));
    };
    assert_eq!(recorded.pid.unsigned_abs(), pid);
}

#[tokio::test]
async fn a_guard_that_is_killed_under_a_frozen_daemon_takes_cmd_along() {
    let fixture = Fixture::new();
    let daemon = Plan::of(FAMILY).start(&fixture);
    let [pid, ..] = family(&fixture).await;
    daemon.freeze().await;
    signal(guard(&fixture).await, Signal::KILL);
    let last = sent(&fixture);
    eventually("CMD has ended", || !is_alive(pid)).await;
    assert!(boot_now() < last.valid_until, "not because of a deadline");
    // The daemon kills the remaining processes when it continues.
    daemon.signal(Signal::CONT);
    let told = wait_for_gone(&fixture).await;
    assert!(told.contains("guard_lost: true"), "{told}");
}

#[tokio::test]
async fn a_frozen_guard_is_killed_after_the_deadline_and_cmd_with_it() {
    let fixture = Fixture::new();
    let _daemon = Plan::of(FAMILY)
        .lasting(STARTS, millis(200))
        .once()
        .start(&fixture);
    let family = family(&fixture).await;
    signal(guard(&fixture).await, Signal::STOP);
    let last = deadlines(&fixture);
    let told = wait_for_gone(&fixture).await;
    let late = boot_now().since(last.kill_at);
    assert_eq!(family.map(exists), [false; 3]);
    assert!(
        late >= millis(100),
        "the daemon waits for the guard first: {late:?}"
    );
    assert!(late < SEEN_LATE, "{late:?}");
    assert!(told.contains("guard_lost: true"), "{told}");
}

#[tokio::test]
async fn signals_that_end_others_do_not_end_a_guard() {
    let fixture = Fixture::new();
    let mut workload = fixture.start("echo $$ > pid; exec sleep 60");
    let pid = fixture.wait_pid("pid").await;
    for ignored in [
        Signal::TERM,
        Signal::INT,
        Signal::HUP,
        Signal::QUIT,
        Signal::TSTP,
        Signal::USR1,
    ] {
        signal(workload.guard(), ignored);
    }
    // The guard still forwards signals.
    workload.signal(15);
    let ended = workload.ended().await;
    assert!(!ended.guard_lost, "{ended:?}");
    assert!(!exists(pid));
    assert_eq!(ended.end.exit_code(), Some(143));
}

#[tokio::test]
async fn a_guard_frozen_during_a_thousand_renewals_applies_the_newest() {
    let fixture = Fixture::new();
    let script =
        "trap 'echo asked >> journal; exit 3' TERM; echo $$ > pid; while :; do sleep 0.01; done";
    let first = terms(STARTS, millis(500));
    let mut workload = fixture.start_until(script, first);
    let pid = fixture.wait_pid("pid").await;
    signal(workload.guard(), Signal::STOP);
    for _ in 0..1000 {
        workload.extend(terms(LONG, LONG));
        tokio::task::yield_now().await;
    }
    // The socket buffer is full of records with later deadlines. `extend` must not block, although
    // the frozen guard does not read.
    let last = terms(STARTS + millis(500), LONG);
    workload.extend(last);
    eventually("the first deadline has passed", || {
        boot_now() > first.valid_until + millis(100)
    })
    .await;
    signal(workload.guard(), Signal::CONT);
    eventually("CMD gets SIGTERM", || !fixture.lines("journal").is_empty()).await;
    assert!(
        boot_now() >= last.valid_until,
        "the guard applied an older record"
    );
    let ended = workload.ended().await;
    assert_eq!((ended.end.exit_code(), ended.guard_lost), (Some(3), false));
    assert!(!exists(pid));
}
