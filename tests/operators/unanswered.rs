//! Goal: where nothing answers, each command names the servers and its time limit within a second,
//! and ends at this limit. The table has all commands, so that a new command cannot forget it.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::{Duration, Instant};

use clap::Command as Subcommands;
use futures_util::future::join_all;
use leasehold_testbed::Scratch;
use rustix::process::{Pid, Signal, kill_process};
use tokio::net::TcpListener;
use tokio::process::Command;

use crate::command::{ended, run, wait_stderr};

/// The first line appears after a second. A busy machine may delay the line, but not to the limit.
const FIRST_LINE_MAX: Duration = Duration::from_secs(8);
/// Maximum time that a busy machine may add to a limit.
const DELAY_MAX: Duration = Duration::from_secs(10);

const TEN: u64 = 10;

/// How a command behaves while MongoDB does not answer.
#[derive(Clone, Copy)]
enum Unanswered {
    /// Names the servers with this limit in seconds, and exits with this code at the limit.
    GivesUp(u64, i32),
    /// Names the servers with this limit, which is too long for a test.
    Waits(&'static str),
    /// Logs the servers, and never gives up.
    Logs,
    /// Asks the daemons of these addresses instead of MongoDB.
    AsksDaemons,
    /// Needs no server.
    Local,
}
use Unanswered::{AsksDaemons, GivesUp, Local, Logs, Waits};

/// The commands, with `DIR` for a directory and `SERVER` for the address of the server.
const COMMANDS: &[(&str, Unanswered)] = &[
    (
        "run --lease orders --status-directory DIR/run --http-listen 127.0.0.1:0",
        Logs,
    ),
    ("lock report -- true", Waits("4m")),
    ("lock report --no-wait -- true", Waits("18s")),
    ("lock report --wait 5s -- true", GivesUp(5, 69)),
    ("status orders --directory DIR/none", Local),
    ("guard --socket DIR/guard.sock -- true", Local),
    ("bury --lease orders DIR/none", Local),
    ("leases", GivesUp(TEN, 69)),
    ("leases --watch", GivesUp(TEN, 69)),
    ("leases -o json", GivesUp(TEN, 69)),
    ("leases retire orders", GivesUp(TEN, 69)),
    ("describe orders", GivesUp(TEN, 69)),
    ("describe orders --candidates", GivesUp(TEN, 69)),
    ("locks", GivesUp(TEN, 69)),
    ("locks --watch", GivesUp(TEN, 69)),
    ("locks break report", GivesUp(TEN, 69)),
    ("locks prune --unused-for 30d", GivesUp(TEN, 69)),
    ("web --listen 127.0.0.1:0", Logs),
    ("step-down orders", GivesUp(TEN, 69)),
    ("transfer orders --to b", GivesUp(TEN, 69)),
    ("pause orders", GivesUp(TEN, 69)),
    ("resume orders", GivesUp(TEN, 69)),
    ("cancel orders", GivesUp(TEN, 69)),
    ("repair orders --token-at-least 5", GivesUp(TEN, 69)),
    ("check orders --http-listen 127.0.0.1:0", GivesUp(TEN, 2)),
    (
        "check orders -o json --http-listen 127.0.0.1:0",
        GivesUp(TEN, 2),
    ),
    ("replicas SERVER", AsksDaemons),
    ("config --lease orders", Local),
    ("completions bash", Local),
    ("install DIR/none", Local),
];

fn program(scratch: &Scratch, server: &str, line: &str) -> Command {
    let line = line.replace("DIR", &scratch.path().display().to_string());
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command
        .args(line.replace("SERVER", server).split(' '))
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env(
            "LEASEHOLD_MONGODB__URI",
            format!("mongodb://{server}/?replicaSet=rs0"),
        )
        .env("XDG_RUNTIME_DIR", scratch.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

async fn examine(server: &str, line: &str, unanswered: Unanswered) {
    let scratch = Scratch::new();
    let mut command = program(&scratch, server, line);
    let connecting = format!("connecting to {server}");
    let (expected, limit) = match unanswered {
        GivesUp(limit, _) => (format!("{connecting} (1s of {limit}s)"), limit),
        Waits(limit) => (format!("{connecting} (1s of {limit})"), 0),
        Logs => (
            format!("\"connecting to MongoDB\",\"lease\":\"orders\",\"servers\":\"{server}\""),
            0,
        ),
        AsksDaemons | Local => {
            let began = Instant::now();
            let answer = run(command).await;
            let took = began.elapsed();
            let limit = Duration::from_secs(TEN) + DELAY_MAX;
            assert!(took < limit, "{line}: {answer:?}");
            // A busy machine may delay the start and the end of the command, but not to its limit.
            let awaits = matches!(unanswered, AsksDaemons) && took > Duration::from_secs(TEN);
            let says = answer.stderr.contains(&connecting);
            assert!(says || !awaits, "{line}: {answer:?}");
            return;
        }
    };
    let expected = match line.starts_with("web") {
        true => expected.replace("\"lease\":\"orders\",", ""),
        false => expected,
    };
    let began = Instant::now();
    let mut child = command.spawn().expect("the program starts");
    wait_stderr(&mut child, &expected).await;
    let first = began.elapsed();
    assert!(first < FIRST_LINE_MAX, "{line}: after {first:?}");
    if !matches!(unanswered, GivesUp(..)) {
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        let pid = pid.and_then(Pid::from_raw).expect("it runs");
        kill_process(pid, Signal::TERM).expect("it runs");
    }
    let answer = ended(child).await;
    if let GivesUp(_, code) = unanswered {
        assert_eq!(answer.code, code, "{line}: {answer:?}");
        let took = began.elapsed();
        let limit = Duration::from_secs(limit);
        assert!(took > limit / 2, "{line}: {took:?}");
        assert!(took < limit + DELAY_MAX, "{line}: {took:?}");
    }
}

#[tokio::test]
async fn every_command_names_the_servers_and_gives_up() {
    // The kernel accepts the connections, but no process reads the requests.
    let hanging = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let hanging = (
        hanging.local_addr().expect("its address").to_string(),
        hanging,
    );
    // No server listens on port 9.
    let servers = [&*hanging.0, "127.0.0.1:9", "nosuch.invalid:27017"];
    let runs = servers.iter().flat_map(|server| {
        let each = COMMANDS.iter();
        each.map(move |(line, unanswered)| examine(server, line, *unanswered))
    });
    join_all(runs).await;
}

#[test]
fn the_table_has_every_command() {
    fn names(command: &Subcommands, path: &str, found: &mut BTreeSet<String>) {
        for command in command.get_subcommands() {
            let path = format!("{path}{}", command.get_name());
            names(command, &format!("{path} "), found);
            found.insert(path);
        }
    }
    let mut missing = BTreeSet::new();
    names(&leasehold::cli::command(), "", &mut missing);
    missing.retain(|name| {
        let mut lines = COMMANDS.iter().map(|(line, _)| line);
        !lines.any(|line| format!("{line} ").starts_with(&format!("{name} ")))
    });
    assert_eq!(missing, BTreeSet::new());
}

#[tokio::test]
async fn lines_are_at_most_80_columns_wide_on_a_terminal() {
    let hosts = ["a", "b", "c"].map(|host| format!("{host}.mongodb.nosuch.invalid:27017"));
    for (line, beginning) in [
        ("leases --timeout 1500ms", "connecting to a.mongodb"),
        ("check orders --timeout 1500ms", "connecting to a.mongodb"),
        ("replicas 127.0.0.1:9", "  to fix: check that"),
    ] {
        let scratch = Scratch::new();
        let program = env!("CARGO_BIN_EXE_leasehold");
        let mut script = Command::new("script");
        script
            .args(["-qec", &format!("{program} {line}"), "/dev/null"])
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("TERM", "xterm")
            .env("XDG_RUNTIME_DIR", scratch.path())
            .env(
                "LEASEHOLD_MONGODB__URI",
                format!("mongodb://{}/?replicaSet=rs0", hosts.join(",")),
            )
            .stdin(Stdio::null());
        let shown = run(script).await.stdout;
        let lines: Vec<_> = shown
            .lines()
            .map(|line| line.trim_end_matches('\r'))
            .collect();
        let begins = lines.iter().any(|line| line.starts_with(beginning));
        assert!(begins, "{line}: {shown}");
        let long = lines.iter().filter(|line| line.chars().count() > 80);
        assert_eq!(long.count(), 0, "{line}: {shown}");
    }
}
