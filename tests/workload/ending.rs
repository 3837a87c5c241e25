//! Goal: leasehold reports the command's exit status unchanged, and never before all processes of
//! the command have exited. Method: run commands that end in various ways.

use leasehold::clock::boot_now;
use leasehold::workload::{CommandEnd, CommandProgress, GuardedCommand};

use leasehold_testbed::pid::exists;

use crate::fixture::{Fixture, LONG, SEEN_LATE, eventually, guarded, millis, shell, terms};

async fn end_of(script: &str) -> CommandEnd {
    let mut workload = GuardedCommand::start(&shell(script), terms(LONG, LONG), None).unwrap();
    let ended = workload.ended().await;
    assert!(!ended.by_us && !ended.guard_lost, "{ended:?}");
    ended.end
}

#[tokio::test]
async fn an_exit_code_passes_through() {
    assert_eq!(end_of("exit 0").await, CommandEnd::Exited(0));
    assert_eq!(end_of("exit 7").await, CommandEnd::Exited(7));
    assert_eq!(end_of("exit 127").await, CommandEnd::Exited(127));
    assert_eq!(CommandEnd::Exited(7).exit_code(), Some(7));
}

#[tokio::test]
async fn a_signal_passes_through_as_128_plus_n() {
    let end = end_of("kill -SEGV $$").await;
    assert_eq!(end, CommandEnd::Signalled(11));
    assert_eq!(end.exit_code(), Some(139));
}

#[tokio::test]
async fn a_command_that_is_not_found_ends_with_127() {
    cannot_run("/nonexistent/command", 2, 127).await;
}

#[tokio::test]
async fn a_command_that_cannot_be_executed_ends_with_126() {
    cannot_run("/etc/passwd", 13, 126).await;
}

async fn cannot_run(program: &str, error: i32, code: u8) {
    let mut workload = GuardedCommand::start(&guarded(program), terms(LONG, LONG), None).unwrap();
    let end = workload.ended().await.end;
    assert_eq!(end, CommandEnd::NotExecuted(error));
    assert_eq!(end.exit_code(), Some(code));
}

#[tokio::test]
async fn a_command_is_asked_to_end_and_ends_by_its_own_code() {
    let fixture = Fixture::new();
    let mut workload = fixture.start(
        "trap 'echo asked >> journal; exit 5' TERM; echo $$ > pid; while :; do sleep 0.01; done",
    );
    let pid = fixture.wait_pid("pid").await;
    assert_eq!(workload.changed().await, CommandProgress::Running { pid });
    workload.stop(15, boot_now() + LONG);
    let ended = workload.ended().await;
    assert_eq!((ended.end, ended.by_us), (CommandEnd::Exited(5), true));
    assert_eq!(fixture.lines("journal"), ["asked"]);
    assert!(!exists(pid));
    let guard = workload.guard();
    eventually("the guard exits too", || !exists(guard)).await;
}

#[tokio::test]
async fn a_command_that_ignores_the_stop_signal_is_killed_in_time() {
    let fixture = Fixture::new();
    let mut workload = fixture.start("trap '' TERM; echo $$ > pid; while :; do sleep 1; done");
    let pid = fixture.wait_pid("pid").await;
    let kill_at = boot_now() + millis(300);
    workload.stop(15, kill_at);
    let ended = workload.ended().await;
    let late = boot_now().since(kill_at);
    assert_eq!((ended.end, ended.by_us), (CommandEnd::Signalled(9), true));
    assert!(boot_now() >= kill_at && late < SEEN_LATE, "{late:?}");
    assert!(!exists(pid));
}
