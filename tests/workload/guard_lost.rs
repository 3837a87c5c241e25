//! Goal: if its guard is killed or frozen, the command still ends by its deadline.
//! Method: real signals to the guard of a live daemon.

use leasehold::clock::boot_now;
use leasehold::workload::claim_share::Child;
use rustix::process::{Resource, Signal, geteuid};

use leasehold_testbed::skip;

use leasehold_testbed::pid::{exists, is_alive, signal};

use crate::scene::{LONG, SEEN_LATE, STARTS, Scene, eventually, millis, terms};
use crate::stand_in::{Plan, deadlines, guard, lock_is_free, recorded_child, sent, wait_told_gone};

/// A command, a descendant in its group, and one that left group and session. All of them ignore
/// SIGTERM.
const FAMILY: &str = "trap '' TERM
    setsid -f sh -c 'echo $$ > away; exec sleep 60'
    sleep 60 &
    echo $! > near
    echo $$ > pid
    while :; do sleep 1; done";

/// In bytes. A higher limit for locked memory does not prevent the lock.
const PROGRAM_MAX: u64 = 1 << 30;

async fn family(scene: &Scene) -> [u32; 3] {
    [
        scene.wait_pid("pid").await,
        scene.wait_pid("near").await,
        scene.wait_pid("away").await,
    ]
}

#[tokio::test]
async fn a_killed_guard_is_noticed_at_once_and_the_daemon_ends_the_whole_family() {
    let scene = Scene::new();
    let _daemon = Plan::of(FAMILY).start(&scene);
    let family = family(&scene).await;
    let guard = guard(&scene).await;
    let last = sent(&scene);
    signal(guard, Signal::KILL);
    let told = wait_told_gone(&scene).await;
    assert!(boot_now() < last.valid_until, "not by a deadline");
    assert_eq!(family.map(exists), [false; 3]);
    assert!(told.contains("guard_lost: true"), "{told}");
    assert!(told.contains("by_us: true"), "{told}");
    assert_eq!(recorded_child(&scene), Child::Gone, "the daemon saw it");
}

/// A hanging disk is a reason to end the command, and must not delay that.
#[tokio::test]
async fn what_a_guard_has_used_stays_in_memory() {
    let scene = Scene::new();
    let plan = Plan::of("echo $$ > pid; exec sleep 60");
    let limit = rustix::process::getrlimit(Resource::Memlock).current;
    if !geteuid().is_root() && limit.is_some_and(|bytes| bytes < PROGRAM_MAX) {
        skip("`ulimit -l` is too low to lock a guard in memory");
        return;
    }
    let _daemon = plan.start(&scene);
    scene.wait_pid("pid").await;
    let guard = guard(&scene).await;
    let status = std::fs::read_to_string(format!("/proc/{guard}/status")).unwrap();
    let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:"));
    let locked = locked.unwrap().trim().trim_end_matches(" kB");
    assert!(locked.parse::<u64>().unwrap() > 0, "{status}");
}

#[tokio::test]
async fn what_guard_and_daemon_did_not_see_the_end_of_stands_in_the_claim_file() {
    let scene = Scene::new();
    let (daemon, pid, guard) = scene
        .stand_in(Plan::of("echo $$ > pid; exec sleep 60"))
        .await;
    daemon.freeze().await;
    signal(guard, Signal::KILL);
    daemon.kill().await;
    eventually("CMD has ended", || !is_alive(pid)).await;
    eventually("the lock is free", || lock_is_free(&scene)).await;
    let Child::Running(recorded) = recorded_child(&scene) else {
        panic!("{:?}", recorded_child(&scene));
    };
    assert_eq!(recorded.pid.unsigned_abs(), pid);
}

#[tokio::test]
async fn a_guard_that_is_killed_under_a_frozen_daemon_takes_cmd_along() {
    let scene = Scene::new();
    let daemon = Plan::of(FAMILY).start(&scene);
    let [pid, ..] = family(&scene).await;
    daemon.freeze().await;
    signal(guard(&scene).await, Signal::KILL);
    let last = sent(&scene);
    eventually("CMD has ended", || !is_alive(pid)).await;
    assert!(boot_now() < last.valid_until, "not by a deadline");
    // The daemon ends the other processes when it continues.
    daemon.signal(Signal::CONT);
    let told = wait_told_gone(&scene).await;
    assert!(told.contains("guard_lost: true"), "{told}");
}

#[tokio::test]
async fn a_frozen_guard_is_killed_after_the_deadline_and_cmd_with_it() {
    let scene = Scene::new();
    let _daemon = Plan::of(FAMILY)
        .lasting(STARTS, millis(200))
        .once()
        .start(&scene);
    let family = family(&scene).await;
    signal(guard(&scene).await, Signal::STOP);
    let last = deadlines(&scene);
    let told = wait_told_gone(&scene).await;
    let late = boot_now().since(last.kill_at);
    assert_eq!(family.map(exists), [false; 3]);
    assert!(late >= millis(100), "the guard has its time: {late:?}");
    assert!(late < SEEN_LATE, "{late:?}");
    assert!(told.contains("guard_lost: true"), "{told}");
}

#[tokio::test]
async fn signals_that_end_others_do_not_end_a_guard() {
    let scene = Scene::new();
    let mut workload = scene.start("echo $$ > pid; exec sleep 60");
    let pid = scene.wait_pid("pid").await;
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
    // The guard still does its work.
    workload.signal(15);
    let ended = workload.ended().await;
    assert!(!ended.guard_lost, "{ended:?}");
    assert!(!exists(pid));
    assert_eq!(ended.end.exit_code(), Some(143));
}

#[tokio::test]
async fn a_guard_that_is_frozen_while_a_thousand_renewals_are_sent_obeys_the_newest() {
    let scene = Scene::new();
    let script =
        "trap 'echo asked >> journal; exit 3' TERM; echo $$ > pid; while :; do sleep 0.01; done";
    let first = terms(STARTS, millis(500));
    let mut workload = scene.start_until(script, first);
    let pid = scene.wait_pid("pid").await;
    signal(workload.guard(), Signal::STOP);
    for _ in 0..1000 {
        workload.extend(terms(LONG, LONG));
        tokio::task::yield_now().await;
    }
    // This record finds no room, and the records that did find room have later deadlines. Waiting
    // for room would never end.
    let last = terms(STARTS + millis(500), LONG);
    workload.extend(last);
    eventually("the first deadline is over", || {
        boot_now() > first.valid_until + millis(100)
    })
    .await;
    signal(workload.guard(), Signal::CONT);
    eventually("CMD is asked to end", || !scene.lines("journal").is_empty()).await;
    assert!(boot_now() >= last.valid_until, "by an older record");
    let ended = workload.ended().await;
    assert_eq!((ended.end.exit_code(), ended.guard_lost), (Some(3), false));
    assert!(!exists(pid));
}
