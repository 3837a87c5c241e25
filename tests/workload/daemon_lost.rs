//! Goal: if the daemon is killed or frozen, its command does not outlive the deadline, and the
//! claim file stays locked until the command has exited (I5). Method: send SIGKILL and SIGSTOP to a
//! daemon.

use leasehold::clock::boot_now;
use leasehold::workload::claim_share::Child;
use rustix::process::Signal;

use leasehold_testbed::pid::{exists, is_alive};

use crate::fixture::{Fixture, SEEN_LATE, STARTS, eventually, millis};
use crate::stand_in::{Plan, deadlines, lock_is_free, recorded_child, sent, wait_for_gone};

const OBEYS: &str =
    "trap 'echo asked >> journal; exit 0' TERM; echo $$ > pid; while :; do sleep 0.01; done";
const IGNORES: &str =
    "trap 'echo asked >> journal' TERM; echo $$ > pid; while :; do sleep 0.01; done";

#[tokio::test]
async fn a_killed_daemon_takes_its_command_along_at_once() {
    let fixture = Fixture::new();
    let (daemon, pid, guard) = fixture.stand_in(Plan::of(OBEYS)).await;
    daemon.kill().await;
    let last = sent(&fixture);
    eventually("the guard ends", || !is_alive(guard)).await;
    assert!(!exists(pid));
    assert_eq!(fixture.lines("journal"), ["asked"]);
    assert!(boot_now() < last.valid_until, "not because of a deadline");
    assert!(lock_is_free(&fixture));
    assert_eq!(recorded_child(&fixture), Child::Gone);
}

#[tokio::test]
async fn a_command_is_in_the_claim_file_from_its_first_instruction_on() {
    let fixture = Fixture::new();
    let daemon = Plan::of("cat claim > seen; echo $$ > pid; exec sleep 60").start(&fixture);
    let pid = fixture.wait_pid("pid").await;
    let seen = String::from_utf8_lossy(&std::fs::read(fixture.path("seen")).unwrap()).into_owned();
    assert!(seen.contains(&format!("running {pid} ")), "{seen}");
    drop(daemon);
}

#[tokio::test]
async fn a_command_that_ignores_it_is_killed_at_the_last_deadline_and_holds_the_lock_until_then() {
    let fixture = Fixture::new();
    let (daemon, pid, _) = fixture
        .stand_in(Plan::of(IGNORES).lasting(STARTS, millis(300)))
        .await;
    daemon.kill().await;
    let (sent, last) = (sent(&fixture), deadlines(&fixture));
    while exists(pid) {
        assert!(boot_now() < last.kill_at + SEEN_LATE, "runs too long");
        // Check the lock first. If the lock is free, the command must already have exited.
        assert!(!lock_is_free(&fixture) || !exists(pid));
        tokio::time::sleep(millis(1)).await;
    }
    assert!(boot_now() >= sent.kill_at, "killed too early");
    eventually("the lock is free", || lock_is_free(&fixture)).await;
    assert_eq!(fixture.lines("journal"), ["asked"]);
}

#[tokio::test]
async fn a_frozen_daemon_loses_its_command_at_the_deadline() {
    let fixture = Fixture::new();
    let (daemon, pid, _) = fixture
        .stand_in(Plan::of(IGNORES).lasting(STARTS, STARTS))
        .await;
    daemon.freeze().await;
    let (sent, last) = (sent(&fixture), deadlines(&fixture));
    eventually("CMD gets SIGTERM", || !fixture.lines("journal").is_empty()).await;
    assert!(boot_now() >= sent.valid_until, "asked early");
    eventually("CMD is gone", || !exists(pid)).await;
    let late = boot_now().since(last.kill_at);
    assert!(boot_now() >= sent.kill_at, "killed early");
    assert!(late < SEEN_LATE, "{late:?}");
    // When the daemon continues, it must report how its command ended.
    daemon.signal(Signal::CONT);
    let told = wait_for_gone(&fixture).await;
    assert!(told.contains("Signalled(9), by_us: true"), "{told}");
    assert!(told.contains("guard_lost: false"), "{told}");
}
