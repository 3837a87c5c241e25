//! Goal: no command runs without authority. Method: set deadlines that pass before the command
//! starts, while it runs, and while it is stopped or terminating.

use leasehold::clock::boot_now;
use leasehold::workload::{CommandEnd, Terms};

use leasehold_testbed::pid::{exists, state};

use crate::fixture::{Fixture, LONG, SEEN_LATE, STARTS, eventually, millis, terms};

#[tokio::test]
async fn a_command_whose_deadline_has_passed_is_not_started() {
    let fixture = Fixture::new();
    let now = boot_now();
    let past = Terms {
        valid_until: now,
        kill_at: now + LONG,
    };
    let script = "echo ran > ran";
    let mut workload = fixture.start_until(script, past);
    assert_eq!(workload.ended().await.end, CommandEnd::Refused);
    assert!(!fixture.path("ran").exists());
}

#[tokio::test]
async fn a_renewed_command_outlives_its_first_deadline() {
    let fixture = Fixture::new();
    let script = "echo $$ > pid; while [ ! -e go ]; do sleep 0.01; done; exit 4";
    let first = terms(STARTS, millis(100));
    let mut workload = fixture.start_until(script, first);
    workload.extend(terms(LONG, LONG));
    let pid = fixture.wait_pid("pid").await;
    eventually("the first deadline has passed", || {
        boot_now() > first.kill_at + millis(100)
    })
    .await;
    assert!(exists(pid));
    std::fs::write(fixture.path("go"), "").unwrap();
    let ended = workload.ended().await;
    assert_eq!((ended.end, ended.by_us), (CommandEnd::Exited(4), false));
}

#[tokio::test]
async fn a_renewal_after_the_deadline_revives_nothing() {
    let fixture = Fixture::new();
    let script = "trap 'echo asked >> journal' TERM; while :; do sleep 0.01; done";
    let last = terms(STARTS, STARTS);
    let mut workload = fixture.start_until(script, last);
    fixture.wait_lines("journal", 1).await;
    workload.extend(terms(LONG, LONG));
    let ended = workload.ended().await;
    assert_eq!((ended.end, ended.by_us), (CommandEnd::Signalled(9), true));
    let late = boot_now().since(last.kill_at);
    assert!(boot_now() >= last.kill_at && late < SEEN_LATE, "{late:?}");
}

#[tokio::test]
async fn a_graceful_stop_ends_at_the_deadline_if_that_comes_first() {
    let fixture = Fixture::new();
    let mut workload = fixture.start("trap '' TERM; echo $$ > pid; while :; do sleep 0.01; done");
    fixture.wait_pid("pid").await;
    let last = terms(millis(300), millis(200));
    workload.extend(last);
    workload.stop(15, boot_now() + LONG);
    let ended = workload.ended().await;
    assert!(ended.by_us, "{ended:?}");
    let late = boot_now().since(last.kill_at);
    assert!(late < SEEN_LATE, "{late:?}");
}

#[tokio::test]
async fn a_stopped_command_is_asked_to_end_and_goes_on_to_do_so() {
    let fixture = Fixture::new();
    let mut workload = fixture.start(
        "trap 'echo asked >> journal; exit 6' TERM; echo $$ > pid; while :; do kill -STOP $$; done",
    );
    let pid = fixture.wait_pid("pid").await;
    eventually("CMD has stopped", || state(pid) == Some('T')).await;
    workload.stop(15, boot_now() + LONG);
    assert_eq!(workload.ended().await.end, CommandEnd::Exited(6));
    assert_eq!(fixture.lines("journal"), ["asked"]);
}

#[tokio::test]
async fn a_stopped_command_that_ignores_it_is_killed() {
    let fixture = Fixture::new();
    let mut workload =
        fixture.start("trap '' TERM; echo $$ > pid; while :; do kill -STOP $$; done");
    let pid = fixture.wait_pid("pid").await;
    eventually("CMD has stopped", || state(pid) == Some('T')).await;
    workload.extend(terms(millis(300), millis(200)));
    assert_eq!(workload.ended().await.end, CommandEnd::Signalled(9));
}

#[tokio::test]
async fn a_command_whose_handle_is_dropped_is_killed() {
    let fixture = Fixture::new();
    let workload = fixture.start("trap '' TERM; echo $$ > pid; while :; do sleep 0.01; done");
    let (pid, guard) = (fixture.wait_pid("pid").await, workload.guard());
    drop(workload);
    eventually("CMD is gone", || !exists(pid)).await;
    eventually("the guard has exited", || !exists(guard)).await;
}
