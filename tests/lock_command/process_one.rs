//! Goal: as process 1 of a PID namespace, for example in a container, leasehold guards its command
//! and reaps orphans. Its session and process group were created outside the namespace, so both ids
//! are 0 inside the namespace.

use std::process::Command;

use leasehold_testbed::pid::{children, signal};
use rustix::process::{Signal, getuid};

use crate::job::{Job, Place, eventually, through};

fn as_process_one(job: &Command) -> Command {
    let mut command = Command::new("unshare");
    if !getuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--pid", "--fork", "--mount-proc", "--kill-child", "--"]);
    through(command, job)
}

fn only_child(pid: u32) -> u32 {
    match children(pid)[..] {
        [child] => child,
        ref others => panic!("process {pid} has children: {others:?}"),
    }
}

fn holding(place: &Place, name: &str, script: &str) -> Job {
    let script = format!("{}; {script}", place.note("holds"));
    let job = place.command(&["lock", name, "--", "sh", "-c", &script]);
    let job = Job::start(as_process_one(&job));
    place.wait_noted("holds");
    job
}

#[test]
fn the_exit_code_of_process_1_is_the_exit_code_of_the_command() {
    let place = Place::new();
    let job = holding(&place, "codes-of-one", "exit 7");
    assert_eq!(job.output().code, 7);
}

#[test]
fn after_a_killed_guard_no_process_remains() {
    let place = Place::new();
    let script = "setsid sleep 1000 & while :; do sleep 0.02; done";
    let job = holding(&place, "guard-of-one", script);
    let guard = only_child(only_child(job.id()));
    signal(guard, Signal::KILL);
    let output = job.output();
    output.says(76, "lost the guard of the command");
    assert!(!output.stderr.contains("panicked"), "{output:?}");
}

#[test]
fn orphans_of_other_processes_are_reaped() {
    let place = Place::new();
    let job = holding(&place, "orphans-of-one", "while :; do sleep 0.02; done");
    let one = only_child(job.id());
    let guard = only_child(one);
    // As with `docker exec` and `kubectl exec`, process 1 becomes the parent of orphans that it did
    // not start.
    let status = Command::new("nsenter")
        .arg(format!("--target={one}"))
        .args(["--pid", "--", "sh", "-c", "sleep 1000 & sleep 1000 &"])
        .status();
    assert!(status.unwrap().success());
    eventually("process 1 has become the parent of the orphans", || {
        children(one).len() == 3
    });
    let orphans = children(one).into_iter().filter(|child| *child != guard);
    orphans.for_each(|orphan| signal(orphan, Signal::KILL));
    eventually("process 1 has reaped the orphans", || {
        children(one) == [guard]
    });
    signal(one, Signal::TERM);
    assert_eq!(job.output().code, 128 + 15);
}
