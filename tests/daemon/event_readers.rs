//! Goal: the programs in docs/reading-status.md that follow `GET /events` notice a change
//! immediately, and trust an event of a frozen daemon only until the event's deadline (I4). Method:
//! extracts each program from the page, and runs it with a daemon that leads, is frozen, leads
//! again, and stops.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use leasehold_testbed::daemon::{boottime_ns, nanos, valid_until_ns};
use leasehold_testbed::documented::{code_block, go_program};
use leasehold_testbed::{Daemon, DaemonTimings, Launch, Process, Scratch, skip};
use rustix::process::Signal;

use crate::contest::{Contest, LONG, eventually, token};

fn block(language: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reading-status.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, events) = page.split_once("\n## Being notified\n").unwrap();
    code_block(events, language)
}

struct Reader {
    printed: PathBuf,
    _process: Process,
}

impl Reader {
    fn start(program: &[&str], daemon: &Daemon, scratch: &Scratch) -> Self {
        let printed = scratch.path().join("printed");
        let home = std::env::var_os("HOME").unwrap_or_default();
        let process = Launch::new("/bin/sh")
            .arguments(["-c", r#"exec "$0" "$@" >&2"#])
            .arguments(program)
            .argument(format!("127.0.0.1:{}", daemon.port()))
            .env("HOME", home)
            .stderr(&printed)
            .start()
            .unwrap();
        Self {
            printed,
            _process: process,
        }
    }

    fn lines(&self) -> Vec<String> {
        let printed = fs::read_to_string(&self.printed).unwrap_or_default();
        printed.lines().map(str::to_owned).collect()
    }

    async fn says(&self, line: &str) {
        eventually(&format!("the last line is {line:?}"), async || {
            self.lines().last().is_some_and(|last| last == line)
        })
        .await;
    }
}

async fn trusts_events_until_their_deadline(lease: &str, program: &[&str], scratch: &Scratch) {
    let contest = Contest::new(lease).await;
    let daemon = contest.candidate_at("a", DaemonTimings::DEMO).start();
    let reader = Reader::start(program, &daemon, scratch);
    let led = daemon.wait_leads(LONG).await;
    let says_leader = format!("leader, token {}", token(&led));
    reader.says(&says_leader).await;
    // Later events have extended the authority beyond the first event's deadline.
    let first = boottime_ns() + 4_500_000_000;
    eventually("the first deadline passed", async || boottime_ns() > first).await;
    assert_eq!(reader.lines().last(), Some(&says_leader));

    daemon.stop();
    let stopped = boottime_ns();
    let frozen = daemon.status();
    reader.says("not leader").await;
    // A frozen daemon sends no events. The daemon's file may be older than its last event by up to
    // one second and one renewal.
    let until = valid_until_ns(&frozen).unwrap();
    assert!(
        boottime_ns() > until - 2_000_000_000,
        "the reader stopped leading too early"
    );
    // The daemon may have renewed once more than its file shows.
    let end = stopped + nanos(DaemonTimings::DEMO.renew_deadline);
    eventually("the deadline passed", async || boottime_ns() > end).await;
    daemon.cont();
    let again = daemon
        .wait_until(
            |status| status["leader"] == true && token(status) > token(&frozen),
            LONG,
        )
        .await;
    reader
        .says(&format!("leader, token {}", token(&again)))
        .await;

    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait_exit(LONG).await, 0);
    reader.says("not leader").await;
    let mut lines = reader.lines();
    if lines[0] == "not leader" {
        lines.remove(0);
    }
    let expected = [
        says_leader,
        "not leader".to_owned(),
        format!("leader, token {}", token(&again)),
        "not leader".to_owned(),
    ];
    assert_eq!(lines, expected);
}

async fn script(lease: &str, interpreter: &str, language: &str) {
    if Command::new(interpreter).arg("--version").output().is_err() {
        skip(&format!("{interpreter} is not installed"));
        return;
    }
    let scratch = Scratch::new();
    let script = scratch.path().join("reader");
    fs::write(&script, block(language)).unwrap();
    let program = [interpreter, script.to_str().unwrap()];
    trusts_events_until_their_deadline(lease, &program, &scratch).await;
}

#[tokio::test]
async fn i4_the_bash_program_trusts_events_until_their_deadline() {
    if Command::new("curl").arg("--version").output().is_err() {
        skip("curl is not installed");
        return;
    }
    script("reader-bash", "bash", "bash").await;
}

#[tokio::test]
async fn i4_the_python_program_trusts_events_until_their_deadline() {
    script("reader-python", "python3", "python").await;
}

#[tokio::test]
async fn i4_the_node_program_trusts_events_until_their_deadline() {
    script("reader-node", "node", "js").await;
}

#[tokio::test]
async fn i4_the_go_program_trusts_events_until_their_deadline() {
    let scratch = Scratch::new();
    let Some(program) = go_program(&block("go"), scratch.path()) else {
        return;
    };
    let program = [program.to_str().unwrap()];
    trusts_events_until_their_deadline("reader-go", &program, &scratch).await;
}
