//! Goal: the exit code of `leasehold status` agrees with a real daemon's files, even after the
//! daemon was killed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use leasehold_testbed::daemon::boottime_ns;
use leasehold_testbed::{DaemonTimings, skip};
use serde_json::Value;

use crate::command::{Answer, Files, leasehold};
use crate::contest::{Contest, LONG, PROGRAM, eventually};

fn status(directory: &Path) -> Answer {
    let directory = directory.to_str().unwrap();
    leasehold(&["status", "--directory", directory], &[])
}

fn status_json(directory: &Path) -> (i32, Value) {
    let directory = directory.to_str().unwrap();
    let arguments = ["status", "--directory", directory, "--output", "json"];
    let answer = leasehold(&arguments, &[]);
    assert_eq!(answer.stderr, "");
    (answer.code, serde_json::from_str(&answer.stdout).unwrap())
}

#[tokio::test]
async fn i4_the_exit_code_of_status_is_correct_even_after_a_kill() {
    let contest = Contest::new("asked").await;
    let timings = DaemonTimings::SHORT;
    let leader = contest.candidate_at("a", timings).leading(LONG).await;
    let follower = contest
        .candidate_at("b", timings)
        .following("a", LONG)
        .await;

    let answer = status(leader.status_directory());
    assert_eq!(answer.code, 0, "{answer:?}");
    assert!(answer.stdout.contains("leader"), "{answer:?}");
    let (code, json) = status_json(leader.status_directory());
    assert_eq!((code, &json["leader"]), (0, &true.into()));
    assert_eq!(json["fresh"], true);
    assert_eq!(json["token"], 1);

    let answer = status(follower.status_directory());
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.stdout.contains("a (token 1)"), "{answer:?}");
    let (code, json) = status_json(follower.status_directory());
    assert_eq!((code, &json["leader"]), (1, &false.into()));
    assert_eq!(json["holder"]["identity"], "a");

    let answer = status(&leader.directory().join("nowhere"));
    assert_eq!(answer.code, 2, "{answer:?}");

    follower.kill();
    leader.kill();
    let deadline = leader.status()["valid_until_boottime_ns"].as_u64().unwrap();
    loop {
        let before = boottime_ns();
        let (code, json) = status_json(leader.status_directory());
        if before > deadline {
            assert_eq!(code, 1, "{json}");
            assert_eq!(json["fresh"], false, "{json}");
            assert_eq!(json["leader"], false, "{json}");
            break;
        }
        assert!(code == 0 || boottime_ns() > deadline, "{code} {json}");
    }
    let answer = status(leader.status_directory());
    assert_eq!(answer.code, 1);
    let why = "the daemon was killed or is frozen: its deadline passed";
    assert!(answer.stdout.contains(why), "{answer:?}");
}

#[tokio::test]
async fn a_follower_that_starts_after_the_leader_died_does_not_call_it_the_leader() {
    let contest = Contest::new("died-before").await;
    let timings = DaemonTimings::DEFAULT;
    let leader = contest.candidate_at("a", timings).leading(LONG).await;
    leader.kill();
    let late = contest
        .candidate_at("b", timings)
        .following("a", LONG)
        .await;
    late.wait_logged("\"recorded holder\"", LONG).await;
    assert!(!late.logs().contains("new leader"), "{}", late.logs());
    assert_eq!(late.status()["holder"]["unconfirmed"], true);
    let answer = status(late.status_directory());
    let holder = "holder     a (token 1), last recorded, not seen to renew yet\n";
    assert!(answer.stdout.contains(holder), "{answer:?}");

    let renewing = Contest::new("renewing").await;
    let timings = DaemonTimings::SHORT;
    let _leader = renewing.candidate_at("a", timings).leading(LONG).await;
    let late = renewing
        .candidate_at("b", timings)
        .following("a", LONG)
        .await;
    late.wait_logged("\"new leader\"", LONG).await;
    eventually("the holder is confirmed", async || {
        late.status()["holder"]["unconfirmed"].is_null()
    })
    .await;
}

#[tokio::test]
async fn status_finds_a_daemon_by_its_lease() {
    let contest = Contest::new("found-by-lease").await;
    let files = Files::new();
    let root = files.path("run");
    let _daemon = contest
        .candidate("a")
        .status_directory(&root.join("leasehold/found-by-lease"))
        .leading(LONG)
        .await;
    let environment = [("XDG_RUNTIME_DIR", root.to_str().unwrap())];
    let ask = |lease| leasehold(&["status", "--lease", lease], &environment);
    let answer = ask("found-by-lease");
    assert_eq!(answer.code, 0, "{answer:?}");
    assert_eq!(ask("no-such-lease").code, 2);
    assert_eq!(ask("not a name").code, 64);
}

#[tokio::test]
async fn the_documented_console_session_works() {
    let contest = Contest::new("documented").await;
    let leader = contest.candidate("a").leading(LONG).await;
    let follower = contest.candidate("b").following("a", LONG).await;
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reading-status.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, block) = page.split_once("```console\n$ ").unwrap();
    let (command, _) = block.split_once("\n```").unwrap();
    assert!(command.contains("/run/leasehold/orders"), "{command}");
    for (daemon, expected) in [(&leader, true), (&follower, false)] {
        let directory = daemon.status_directory().to_str().unwrap();
        let command = command.replace("/run/leasehold/orders", directory);
        let output = Command::new("/bin/sh")
            .args(["-c", &command])
            .env("PATH", Path::new(PROGRAM).parent().unwrap())
            .output()
            .unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.success(), expected, "{stdout}");
        assert_eq!(stdout.contains("I lead"), expected, "{stdout}");
    }
}

#[tokio::test]
async fn watch_prints_a_line_for_each_change() {
    let contest = Contest::new("watched").await;
    let daemon = contest.candidate("a").leading(LONG).await;
    let (watch, lines) = Watch::start(daemon.status_directory());
    let mut seen: Vec<String> = Vec::new();
    let mut wait_for = async |part: &str| {
        eventually(part, async || {
            seen.extend(lines.try_iter());
            seen.last().is_some_and(|line| line.contains(part))
        })
        .await;
        seen.clone()
    };
    wait_for("watched: leader, token 1").await;
    assert_eq!(daemon.term_and_exit(LONG).await, 0);
    let seen = wait_for("not leader, the daemon has stopped").await;
    assert!(
        (2..=4).contains(&seen.len()),
        "a renewal printed a line: {seen:?}"
    );
    drop(watch);
}

struct Watch(Child);

impl Watch {
    fn start(directory: &Path) -> (Self, mpsc::Receiver<String>) {
        let mut child = Command::new(PROGRAM)
            .args(["status", "--watch", "--directory"])
            .arg(directory)
            .env_clear()
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        (Self(child), lines)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn i4_a_reader_with_another_clock_gets_unknown() {
    let contest = Contest::new("time-namespace").await;
    let leader = contest.candidate("a").leading(LONG).await;
    // The reader's CLOCK_BOOTTIME is behind, so an expired deadline would look valid.
    let elsewhere = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--time", "--boottime=-1", "--"]).args(words);
        command.output().unwrap()
    };
    if !elsewhere(&["true"]).status.success() {
        skip("needs root, and a kernel with time namespaces");
        return;
    }
    let directory = leader.status_directory().to_str().unwrap().to_owned();
    let asked = [PROGRAM, "status", "--directory", &directory];
    let answer = elsewhere(&asked);
    let text = String::from_utf8_lossy(&answer.stdout).into_owned();
    assert_eq!(answer.status.code(), Some(2), "{text}");
    assert!(text.contains("another time namespace"), "{text}");
    assert!(leader.leads(), "with the daemon's clock");
    assert_eq!(status(leader.status_directory()).code, 0);
}

#[tokio::test]
async fn watch_ends_when_its_reader_has_gone_even_without_a_change() {
    let files = Files::new();
    let mut watch = Command::new(PROGRAM)
        .args(["status", "--watch", "--directory"])
        .arg(files.path("nowhere"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut watch = Watch(watch);
    let first = lines.next().unwrap().unwrap();
    assert!(first.contains("cannot tell"), "{first}");
    drop(lines);
    eventually("the command ends", async || {
        watch.0.try_wait().unwrap().is_some()
    })
    .await;
    assert_eq!(watch.0.wait().unwrap().code(), Some(0));
}
