//! Goal: a command never counts as ended while one of its processes runs. Method: run commands that
//! leave processes behind in various ways.

use leasehold::clock::boot_now;
use leasehold::workload::{CommandEnd, CommandProgress, GuardedCommand};
use leasehold_testbed::process::write_program;

use leasehold_testbed::pid::exists;

use crate::fixture::{Fixture, LONG, eventually, guarded, millis, terms};

#[tokio::test]
async fn a_daemonized_descendant_does_not_outlive_its_command() {
    let fixture = Fixture::new();
    // `away` is an orphan in another session, like a daemon.
    let mut workload = fixture.start(
        "setsid sh -c 'sh -c \"trap \\\"\\\" TERM; echo \\$\\$ > away; sleep 60; :\" & exit 0' &
         while [ ! -s away ]; do sleep 0.01; done; echo $$ > pid; while [ ! -e go ]; do sleep 0.01; done; exit 2",
    );
    let (pid, away) = (
        fixture.wait_pid("pid").await,
        fixture.wait_pid("away").await,
    );
    workload.extend(terms(LONG, millis(300)));
    assert!(exists(pid) && exists(away));
    workload.stop(15, boot_now() + millis(300));
    let ended = workload.ended().await;
    assert!(!exists(away) && !exists(pid), "{ended:?}");
}

#[tokio::test]
async fn descendants_of_an_ended_command_are_ended_after_its_exit_is_reported() {
    let fixture = Fixture::new();
    let script = "setsid sh -c 'echo $$ > away; exec sleep 60' &
         sh -c 'trap \"\" TERM; echo $$ > near; while :; do sleep 1; done' &
         while [ ! -s away ] || [ ! -s near ]; do sleep 0.01; done; exit 3";
    let mut workload = fixture.start_until(script, terms(LONG, millis(400)));
    let mut told = Vec::new();
    while !matches!(told.last(), Some(CommandProgress::Gone(_))) {
        told.push(workload.changed().await);
    }
    let end = CommandEnd::Exited(3);
    let ending = CommandProgress::Ending {
        end,
        by_us: false,
        lingers: false,
    };
    assert!(told.contains(&ending), "{told:?}");
    let Some(CommandProgress::Gone(ended)) = told.last() else {
        unreachable!()
    };
    assert_eq!((ended.end, ended.by_us), (end, false));
    let left = [
        fixture.wait_pid("away").await,
        fixture.wait_pid("near").await,
    ];
    assert_eq!(left.map(exists), [false, false]);
}

#[tokio::test]
async fn zombies_that_a_running_command_leaves_are_waited_for() {
    let fixture = Fixture::new();
    // Start fifty orphans, which exit while CMD continues.
    let mut workload = fixture.start(
        "i=0; while [ $i -lt 50 ]; do (sh -c 'echo $$ >> zombies' &); i=$((i+1)); done
         echo $$ > pid; exec sleep 60",
    );
    let zombies = fixture.wait_lines("zombies", 50).await;
    let pid = fixture.wait_pid("pid").await;
    let zombies: Vec<u32> = zombies.iter().map(|pid| pid.parse().unwrap()).collect();
    eventually("the guard has reaped all zombies", || {
        !zombies.iter().any(|pid| exists(*pid))
    })
    .await;
    assert!(exists(pid));
    workload.kill();
    assert_eq!(workload.ended().await.end, CommandEnd::Signalled(9));
}

#[tokio::test]
async fn a_chain_that_forks_faster_than_it_can_be_listed_is_ended() {
    let fixture = Fixture::new();
    let hydra = fixture.path("hydra");
    let text = "#!/bin/sh\ntrap '' TERM\n\"$0\" &\necho head >> \"$0.heads\"\n";
    write_program(&hydra, text);
    let command = guarded(hydra.to_str().unwrap());
    // The group's leader exits immediately. The other processes ignore SIGTERM and get a grace
    // period.
    let mut workload = GuardedCommand::start(&command, terms(LONG, millis(300)), None).unwrap();
    let ended = workload.ended().await;
    assert_eq!(ended.end, CommandEnd::Exited(0));
    let heads = fixture.lines("hydra.heads").len();
    assert!(heads > 0, "the command never ran");
    tokio::time::sleep(millis(100)).await;
    assert_eq!(fixture.lines("hydra.heads").len(), heads, "it lives");
    assert_eq!(processes_of(&hydra.display().to_string()), 0);
}

#[tokio::test]
async fn a_stop_reaches_the_whole_group_and_waits_for_slow_processes() {
    let fixture = Fixture::new();
    let mut workload = fixture.start(
        "sh -c 'trap \"sleep 0.3; echo done >> journal; exit 0\" TERM; echo $$ > near
             while :; do sleep 0.01; done' &
         while [ ! -s near ]; do sleep 0.01; done; echo $$ > pid; wait",
    );
    fixture.wait_pid("pid").await;
    workload.stop(15, boot_now() + LONG);
    let ended = workload.ended().await;
    assert_eq!(
        ended.end,
        CommandEnd::Signalled(15),
        "the leader does not wait"
    );
    assert_eq!(fixture.lines("journal"), ["done"], "its child may");
}

fn processes_of(text: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|process| std::fs::read(process.path().join("cmdline")).ok())
        .filter(|line| String::from_utf8_lossy(line).contains(text))
        .count()
}
