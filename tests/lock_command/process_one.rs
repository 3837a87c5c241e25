//! Goal: as process 1 of a PID namespace, as in a container, leasehold guards and reaps as
//! elsewhere. Its session and its process group began outside, so inside both have the number 0.

use std::process::Command;

use leasehold_testbed::run;
use rustix::process::{Pid, Signal, getuid, kill_process};

use crate::job::{Job, Place, eventually};

/// Runs the job as process 1 of its own PID namespace, with a matching /proc.
fn as_process_one(job: &Command) -> Command {
    let mut command = Command::new("unshare");
    if !getuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--pid", "--fork", "--mount-proc", "--kill-child", "--"]);
    command.arg(job.get_program()).args(job.get_args());
    command.env_clear();
    let set = job
        .get_envs()
        .filter_map(|(name, value)| Some((name, value?)));
    command.envs(set);
    command.stdin(std::process::Stdio::null());
    command.stdout(std::process::Stdio::piped());
    command.stderr(std::process::Stdio::piped());
    command
}

/// Returns the children of a process, as this namespace numbers them.
fn children(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let text = text.unwrap_or_default();
    text.split_whitespace()
        .map(|id| id.parse().unwrap())
        .collect()
}

fn only_child(pid: u32) -> u32 {
    match children(pid)[..] {
        [child] => child,
        ref others => panic!("{pid} has the children {others:?}"),
    }
}

fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// Starts a job that holds the lock.
fn holding(place: &Place, name: &str, script: &str) -> Job {
    let script = format!("{}; {script}", place.note("holds"));
    let job = place.command(&["lock", name, "--", "sh", "-c", &script]);
    let job = Job::start(as_process_one(&job));
    place.wait_noted("holds");
    job
}

#[test]
fn the_exit_code_is_the_commands() {
    let place = run(Place::new());
    let job = holding(&place, "codes-of-one", "exit 7");
    assert_eq!(job.output().code, 7);
}

#[test]
fn a_killed_guard_is_noticed_and_nothing_is_left() {
    let place = run(Place::new());
    let script = "setsid sleep 1000 & while :; do sleep 0.02; done";
    let job = holding(&place, "guard-of-one", script);
    let guard = only_child(only_child(job.id()));
    signal(guard, Signal::KILL);
    let output = job.output();
    assert_eq!(output.code, 76, "{output:?}");
    assert!(
        output.stderr.contains("lost the guard of the command"),
        "{output:?}"
    );
    assert!(!output.stderr.contains("panicked"), "{output:?}");
}

#[test]
fn orphans_of_others_are_reaped() {
    let place = run(Place::new());
    let job = holding(&place, "orphans-of-one", "while :; do sleep 0.02; done");
    let one = only_child(job.id());
    let guard = only_child(one);
    // Like processes that `docker exec` and `kubectl exec` start: their orphans become children of
    // process 1, which did not start them.
    let status = Command::new("nsenter")
        .arg(format!("--target={one}"))
        .args(["--pid", "--", "sh", "-c", "sleep 1000 & sleep 1000 &"])
        .status();
    assert!(status.unwrap().success());
    eventually("it has become their parent", || children(one).len() == 3);
    let orphans = children(one).into_iter().filter(|child| *child != guard);
    orphans.for_each(|orphan| signal(orphan, Signal::KILL));
    eventually("it has waited for them", || children(one) == [guard]);
    signal(one, Signal::TERM);
    assert_eq!(job.output().code, 128 + 15);
}
