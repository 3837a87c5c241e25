//! Goal: scripts in other languages can hold a lock through a pipe.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;

use crate::job::{Job, Place};

fn holder(
    place: &Place,
    arguments: &[&str],
) -> (Job, serde_json::Value, impl std::io::Write + use<>) {
    let mut command = place.command(&[&["lock"], arguments].concat());
    command.stdin(Stdio::piped());
    let mut job = Job::start(command);
    let mut line = String::new();
    BufReader::new(job.standard_output())
        .read_line(&mut line)
        .unwrap();
    let input = job.input();
    (job, serde_json::from_str(&line).unwrap(), input)
}

#[test]
fn one_line_reports_the_lock_and_closing_standard_input_releases_it() {
    let place = Place::new();
    let (job, line, input) = holder(&place, &["piped"]);
    assert_eq!(line, serde_json::json!({ "lock": "piped", "token": 1 }));
    assert_eq!(place.run_empty("piped", &["--no-wait"]).code, 75);
    drop(input);
    assert_eq!(job.output().code, 0);
    assert_eq!(place.run_empty("piped", &["--no-wait"]).code, 0);
    let (_job, line, _input) = holder(&place, &["numbered", "--slots=2"]);
    let numbered = serde_json::json!({ "lock": "numbered", "token": 1, "slot": 0 });
    assert_eq!(line, numbered);
}

fn stopping(place: &Place, name: &str, flags: &[&str]) -> (Job, impl std::io::Write + use<>) {
    let (mut job, _, input) = holder(place, &[&[name], flags].concat());
    job.signal(Signal::TERM);
    job.wait_logged("stop signal received");
    (job, input)
}

fn is_held_and_expires(place: &Place, name: &str) {
    let listed = place.run(&["locks"]).stdout;
    let held = listed.lines().find(|line| line.starts_with(name));
    assert!(
        held.is_some_and(|line| line.contains(" exclusive ")),
        "{held:?}"
    );
    assert_eq!(place.run_empty(name, &[]).code, 0);
}

#[test]
fn after_a_signal_the_lock_is_held_until_standard_input_closes() {
    let place = Place::new();
    let (job, input) = stopping(&place, "signalled", &[]);
    let next = place.start_empty("signalled", &["--identity=next"]);
    place.wait_listed("next");
    let refused = place.run_empty("signalled", &["--no-wait"]);
    assert_eq!(refused.code, 75, "the lock is still in use: {refused:?}");
    drop(input);
    assert_eq!(job.output().code, 128 + 15);
    assert_eq!(next.output().code, 0);
}

#[test]
fn after_stop_grace_the_job_exits_and_a_lock_in_use_expires() {
    let place = Place::new();
    let flags = ["--workload-stop-grace=300ms", "--lease-duration=6s"];
    let (job, input) = stopping(&place, "grace", &flags);
    let output = job.output();
    output.says(128 + 15, "standard input is still open after stop_grace");
    is_held_and_expires(&place, "grace");
    drop(input);
}

#[test]
fn after_a_second_signal_the_job_exits_at_once_and_the_lock_expires() {
    let place = Place::new();
    let (job, input) = stopping(&place, "impatient", &["--lease-duration=6s"]);
    job.signal(Signal::TERM);
    std::thread::sleep(Duration::from_secs(1));
    job.signal(Signal::TERM);
    assert_eq!(job.output().code, 128 + 15);
    is_held_and_expires(&place, "impatient");
    drop(input);
}

#[test]
fn after_a_loss_by_deadline_the_lock_is_not_released() {
    let place = Place::new();
    let direct = place.set.uri();
    let proxy = place.set.proxy();
    let uri = place.set.proxied_uri(&proxy);
    let place = place.reached_by(uri);
    let (job, _, input) = holder(&place, &["silent-helper", "--lease-duration=3s"]);
    // Requests reach the server, but the proxy holds the replies.
    proxy.hold_replies_containing("silent-helper");
    assert_eq!(job.output().code, 76);
    let place = place.reached_by(direct);
    is_held_and_expires(&place, "silent-helper");
    drop(input);
}

#[test]
fn a_lock_that_was_broken_before_its_input_closes_is_reported() {
    let place = Place::new();
    let (job, _, input) = holder(&place, &["broken-before", "--lease-duration=10m"]);
    let broken = place.run(&["locks", "break", "broken-before", "--force", "--yes"]);
    assert_eq!(broken.code, 0, "{broken:?}");
    drop(input);
    job.output()
        .says(76, "another holder may have run at the same time");
}

#[test]
fn after_the_loss_of_the_lock_the_job_exits_76() {
    let place = Place::new();
    let (job, _, input) = holder(&place, &["broken-away"]);
    let broken = place.run(&["locks", "break", "broken-away", "--force", "--yes"]);
    assert_eq!(broken.code, 0, "{broken:?}");
    assert_eq!(job.output().code, 76);
    drop(input);
}

/// Starts `leasehold lock` without a command, with a full pipe as standard output. Returns the job,
/// the reader of the pipe, and the job's standard input.
fn unread(place: &Place, flags: &[&str]) -> (Job, File, impl std::io::Write + use<>) {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while rustix::io::write(&writer, &[b'\n'; 4096]).is_ok() {}
    // Programs expect a blocking pipe.
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    let mut command = place.command(&[&["lock", "unread"], flags].concat());
    command.stdin(Stdio::piped()).stdout(writer);
    let mut job = Job::start(command);
    // The test's copy of the writer was closed when `command` was dropped.
    let input = job.input();
    (job, reader.into(), input)
}

#[test]
fn a_lock_whose_line_is_not_read_is_released_and_never_reported_as_held() {
    let place = Place::new();
    // The lease is shorter than the timeout for writing the line, so the job must renew while it
    // waits.
    let (job, mut output, input) = unread(&place, &["--lease-duration=3s"]);
    place.wait_listed("held");
    let next = place.run_empty("unread", &[]);
    assert_eq!(next.code, 0, "{next:?}");
    let job = job.output();
    job.says(2, "given back: standard output was not read");
    let mut text = String::new();
    output.read_to_string(&mut text).unwrap();
    assert_eq!(text.trim(), "");
    drop(input);
}

#[test]
fn a_lock_whose_line_cannot_be_written_is_released() {
    let place = Place::new();
    let mut command = place.command(&["lock", "full"]);
    let full = File::options().write(true).open("/dev/full").unwrap();
    command.stdin(Stdio::piped()).stdout(full);
    let mut job = Job::start(command);
    let input = job.input();
    job.output()
        .says(2, "given back: standard output cannot be written");
    assert_eq!(place.run_empty("full", &["--no-wait"]).code, 0);
    drop(input);
}

#[test]
fn a_delayed_line_is_printed_once_the_pipe_is_read() {
    let place = Place::new();
    let (job, output, input) = unread(&place, &[]);
    place.wait_listed("held");
    let mut lines = BufReader::new(output).lines().map(Result::unwrap);
    let line = lines.find(|line| !line.is_empty()).unwrap();
    assert_eq!(line, r#"{"lock":"unread","token":1}"#);
    drop(input);
    assert_eq!(job.output().code, 0);
}

#[test]
fn a_signal_stops_a_job_whose_line_is_not_read() {
    let place = Place::new();
    let (job, _output, _input) = unread(&place, &[]);
    place.wait_listed("held");
    job.signal(Signal::TERM);
    assert_eq!(job.output().code, 128 + 15);
    assert_eq!(place.run_empty("unread", &["--no-wait"]).code, 0);
}

fn started(place: &Place, arguments: &[&str]) -> Job {
    let mut command = place.command(&[&["lock"], arguments].concat());
    command.stdin(Stdio::piped());
    Job::start(command)
}

#[test]
fn a_waiter_whose_standard_input_closes_leaves_the_queue() {
    let place = Place::new();
    let (job, _, input) = holder(&place, &["abandoned"]);
    let mut waiter = started(&place, &["abandoned", "--identity=waiter"]);
    place.wait_listed("waiter");
    drop(waiter.input());
    waiter
        .output()
        .says(64, "standard input was closed during the wait");
    let listed = place.run(&["locks"]).stdout;
    assert!(!listed.contains("waiter"), "{listed}");
    drop(input);
    assert_eq!(job.output().code, 0);
}

#[test]
fn between_attempts_a_job_exits_when_its_standard_input_closes() {
    let place = Place::new();
    let (_job, _, _input) = holder(&place, &["retried"]);
    let flags = ["--no-wait", "--retries=1000", "--lease-duration=24s"];
    let mut waiter = started(&place, &[&["retried"], &flags[..]].concat());
    waiter.wait_logged("not acquired");
    drop(waiter.input());
    assert_eq!(waiter.output().code, 64);
}

/// Starts `leasehold lock` without a command, with `--report-exit-code`. Returns the job, its
/// standard input and its standard output.
fn reporting(
    place: &Place,
    flags: &[&str],
) -> (
    Job,
    impl std::io::Write + use<>,
    impl Iterator<Item = serde_json::Value> + use<>,
) {
    let mut job = started(
        place,
        &[&["reported", "--report-exit-code"], flags].concat(),
    );
    let lines = BufReader::new(job.standard_output()).lines();
    let input = job.input();
    let parsed = lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap());
    (job, input, parsed)
}

#[test]
fn the_exit_code_is_reported_on_request() {
    let place = Place::new();
    let last = |code: i32| serde_json::json!({ "lock": "reported", "exit_code": code });
    let refused = |flag: &str, code: i32, why: &str| {
        let (job, _input, mut lines) = reporting(&place, &[flag]);
        let line = lines.next().unwrap();
        assert_eq!(line["exit_code"], code, "{line}");
        assert!(line["error"].as_str().unwrap().starts_with(why), "{line}");
        assert_eq!(lines.next(), None);
        assert_eq!(job.output().code, code);
    };
    let (job, input, mut lines) = reporting(&place, &[]);
    let held = serde_json::json!({ "lock": "reported", "token": 1 });
    assert_eq!(lines.next(), Some(held));
    refused("--no-wait", 75, "not acquired: held by ");
    refused("--slots=2", 78, "in use without slots");
    drop(input);
    assert_eq!(lines.collect::<Vec<_>>(), [last(0)]);
    assert_eq!(job.output().code, 0);
    let (_job, _input, mut lines) = reporting(&place, &[]);
    assert_eq!(lines.next().unwrap()["token"], 2);
    let broken = place.run(&["locks", "break", "reported", "--force", "--yes"]);
    assert_eq!(broken.code, 0, "{broken:?}");
    assert_eq!(lines.collect::<Vec<_>>(), [last(76)]);
    let refused = place.run_under("reported", &["--report-exit-code"], ":");
    refused.says(64, "'--report-exit-code' cannot be used with '[CMD]...'");
}
