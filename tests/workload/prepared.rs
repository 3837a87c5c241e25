//! Goal: a prepared command never runs before the daemon has authority. If the command is not
//! needed, no process remains. If the command is needed, it starts even if its waiting guard or
//! shim was killed.

use std::fs::File;

use leasehold::workload::claim_share::{ClaimPlace, ClaimShare};
use leasehold::workload::{CommandEnd, StandbyGuard};
use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;

use leasehold_testbed::pid::{children, exists, is_alive, signal, state};

use crate::fixture::{Fixture, LONG, eventually, millis, terms};

const SCRIPT: &str = "echo \"$TOKEN\" > token; exit 3";

/// Returns the prepared command, and the process ids of its guard and its waiting shim.
async fn prepare(fixture: &Fixture, script: &str) -> (StandbyGuard, u32, u32) {
    let prepared = fixture.script(script).prepare().unwrap();
    let guard = prepared.guard();
    let mut found = None;
    eventually("the shim waits", || {
        found = children(guard).first().copied();
        // The guard waits until its shim has executed the program, so stopping the shim earlier
        // would stop the guard too.
        let words = found.map(|shim: u32| std::fs::read(format!("/proc/{shim}/cmdline")));
        words.is_some_and(|words| words.unwrap_or_default().ends_with(b"__shim\0"))
    })
    .await;
    (prepared, guard, found.unwrap())
}

async fn wait_gone<const N: usize>(pids: [u32; N]) {
    let gone = || !pids.into_iter().any(is_alive);
    eventually("guard and shim have exited", gone).await;
}

async fn runs(fixture: &Fixture, prepared: StandbyGuard) {
    let token = ("TOKEN".into(), "7".into());
    let mut workload = prepared.start([token], terms(LONG, LONG), None).unwrap();
    assert_eq!(workload.ended().await.end, CommandEnd::Exited(3));
    assert_eq!(fixture.lines("token"), ["7"]);
    let guard = workload.guard();
    eventually("the guard exits too", || !exists(guard)).await;
}

#[tokio::test]
async fn a_prepared_command_starts_only_with_authority_and_its_token() {
    let fixture = Fixture::new();
    let (prepared, guard, shim) = prepare(&fixture, SCRIPT).await;
    // `pgrep -f` for the workload must not match a waiting guard or shim.
    for pid in [guard, shim] {
        let words = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
        assert!(!words.contains("token"), "{words}");
    }
    assert!(!fixture.path("token").exists());
    runs(&fixture, prepared).await;
}

#[tokio::test]
async fn the_shim_that_waited_becomes_the_command() {
    let fixture = Fixture::new();
    let (prepared, _, shim) = prepare(&fixture, "echo $$ > pid; exit 3").await;
    let mut workload = prepared.start([], terms(LONG, LONG), None).unwrap();
    assert_eq!(workload.ended().await.end, CommandEnd::Exited(3));
    assert_eq!(fixture.lines("pid"), [shim.to_string()]);
}

#[tokio::test]
async fn a_guard_that_was_killed_while_it_waited_is_replaced() {
    let fixture = Fixture::new();
    let (prepared, guard, shim) = prepare(&fixture, SCRIPT).await;
    signal(guard, Signal::KILL);
    wait_gone([guard, shim]).await;
    runs(&fixture, prepared).await;
}

#[tokio::test]
async fn a_shim_that_was_killed_while_it_waited_is_replaced() {
    let fixture = Fixture::new();
    let (prepared, _, shim) = prepare(&fixture, SCRIPT).await;
    signal(shim, Signal::TERM);
    wait_gone([shim]).await;
    runs(&fixture, prepared).await;
}

#[tokio::test]
async fn a_stopped_standby_guard_continues() {
    let fixture = Fixture::new();
    let (prepared, guard, shim) = prepare(&fixture, SCRIPT).await;
    signal(guard, Signal::STOP);
    signal(shim, Signal::STOP);
    let stopped = |pid| state(pid) == Some('T');
    eventually("both have stopped", || stopped(guard) && stopped(shim)).await;
    runs(&fixture, prepared).await;
}

#[tokio::test]
async fn a_dismissed_standby_guard_leaves_no_process_and_no_zombie() {
    let fixture = Fixture::new();
    let (prepared, guard, shim) = prepare(&fixture, SCRIPT).await;
    prepared.dismiss().await;
    assert!(!exists(guard) && !exists(shim));
}

#[tokio::test]
async fn a_stopped_standby_guard_can_be_dismissed() {
    let fixture = Fixture::new();
    let (prepared, guard, shim) = prepare(&fixture, SCRIPT).await;
    signal(guard, Signal::STOP);
    eventually("the guard has stopped", || state(guard) == Some('T')).await;
    prepared.dismiss().await;
    wait_gone([guard, shim]).await;
}

#[tokio::test]
async fn an_unneeded_standby_guard_exits() {
    let fixture = Fixture::new();
    let (prepared, guard, shim) = prepare(&fixture, SCRIPT).await;
    drop(prepared);
    wait_gone([guard, shim]).await;
    assert!(!fixture.path("token").exists());
}

#[tokio::test]
async fn a_passed_deadline_refuses_the_prepared_command() {
    let fixture = Fixture::new();
    let (prepared, _, shim) = prepare(&fixture, SCRIPT).await;
    let passed = terms(millis(0), LONG);
    let mut workload = prepared.start([], passed, None).unwrap();
    assert_eq!(workload.ended().await.end, CommandEnd::Refused);
    wait_gone([shim]).await;
    assert!(!fixture.path("token").exists());
}

#[tokio::test]
async fn the_claim_is_held_from_the_start_to_the_end_of_the_command_only() {
    let fixture = Fixture::new();
    let claim = File::create(fixture.path("claim")).unwrap();
    let free = || {
        let other = File::open(fixture.path("claim")).unwrap();
        flock(other, FlockOperation::NonBlockingLockExclusive).is_ok()
    };
    let script = "echo $$ > pid; while [ ! -e go ]; do sleep 0.01; done";
    let (prepared, ..) = prepare(&fixture, script).await;
    // The lock may stay held for a moment, because a child that another test has just forked keeps
    // this process's descriptors open until the child executes its program.
    eventually("the waiting guard does not hold the lock", free).await;
    eventually("this process has locked the file", || {
        flock(&claim, FlockOperation::NonBlockingLockExclusive).is_ok()
    })
    .await;
    let claim = Some(ClaimShare::new(claim.into(), ClaimPlace::Command));
    let mut workload = prepared.start([], terms(LONG, LONG), claim).unwrap();
    fixture.wait_pid("pid").await;
    assert!(!free(), "the guard holds the lock");
    std::fs::write(fixture.path("go"), "").unwrap();
    workload.ended().await;
    eventually("the lock is free after the command has ended", free).await;
}
