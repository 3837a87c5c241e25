//! Goal: CMD ends in time when its daemon is killed or frozen, and the claim lock is free only when
//! CMD is gone (I5).
//! Method: real signals to a daemon.

use leasehold::clock::boot_now;
use leasehold::workload::claim_share::Child;
use rustix::process::Signal;

use leasehold_testbed::pid::{exists, is_alive};

use crate::scene::{SEEN_LATE, STARTS, Scene, eventually, millis};
use crate::stand_in::{Plan, deadlines, lock_is_free, recorded_child, sent, wait_told_gone};

const OBEYS: &str =
    "trap 'echo asked >> journal; exit 0' TERM; echo $$ > pid; while :; do sleep 0.01; done";
const IGNORES: &str =
    "trap 'echo asked >> journal' TERM; echo $$ > pid; while :; do sleep 0.01; done";

#[tokio::test]
async fn a_killed_daemon_takes_its_command_along_at_once() {
    let scene = Scene::new();
    let (daemon, pid, guard) = scene.stand_in(Plan::of(OBEYS)).await;
    daemon.kill().await;
    let last = sent(&scene);
    eventually("the guard ends", || !is_alive(guard)).await;
    assert!(!exists(pid));
    assert_eq!(scene.lines("journal"), ["asked"]);
    assert!(boot_now() < last.valid_until, "not by a deadline");
    assert!(lock_is_free(&scene));
    assert_eq!(recorded_child(&scene), Child::Gone);
}

#[tokio::test]
async fn what_runs_stands_in_the_claim_file_from_its_first_instruction_on() {
    let scene = Scene::new();
    let daemon = Plan::of("cat claim > seen; echo $$ > pid; exec sleep 60").start(&scene);
    let pid = scene.wait_pid("pid").await;
    let seen = String::from_utf8_lossy(&std::fs::read(scene.path("seen")).unwrap()).into_owned();
    assert!(seen.contains(&format!("running {pid} ")), "{seen}");
    drop(daemon);
}

#[tokio::test]
async fn a_command_that_ignores_it_is_killed_at_the_last_deadline_and_holds_the_lock_until_then() {
    let scene = Scene::new();
    let (daemon, pid, _) = scene
        .stand_in(Plan::of(IGNORES).lasting(STARTS, millis(300)))
        .await;
    daemon.kill().await;
    let (sent, last) = (sent(&scene), deadlines(&scene));
    while exists(pid) {
        assert!(boot_now() < last.kill_at + SEEN_LATE, "alive too long");
        // Checked in this order: if the lock is free, CMD must be gone already.
        assert!(!lock_is_free(&scene) || !exists(pid));
        tokio::time::sleep(millis(1)).await;
    }
    assert!(boot_now() >= sent.kill_at, "not so early");
    eventually("the lock is free", || lock_is_free(&scene)).await;
    assert_eq!(scene.lines("journal"), ["asked"]);
}

#[tokio::test]
async fn a_frozen_daemon_loses_its_command_at_the_deadline() {
    let scene = Scene::new();
    let (daemon, pid, _) = scene
        .stand_in(Plan::of(IGNORES).lasting(STARTS, STARTS))
        .await;
    daemon.freeze().await;
    let (sent, last) = (sent(&scene), deadlines(&scene));
    eventually("CMD is asked to end", || !scene.lines("journal").is_empty()).await;
    assert!(boot_now() >= sent.valid_until, "asked early");
    eventually("CMD is gone", || !exists(pid)).await;
    let late = boot_now().since(last.kill_at);
    assert!(boot_now() >= sent.kill_at, "killed early");
    assert!(late < SEEN_LATE, "{late:?}");
    // Renewals of a daemon that continues revive nothing.
    daemon.signal(Signal::CONT);
    let told = wait_told_gone(&scene).await;
    assert!(told.contains("Signalled(9), by_us: true"), "{told}");
    assert!(told.contains("guard_lost: false"), "{told}");
}
