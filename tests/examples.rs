//! Goal: a reader can run the examples as documented. Method: runs the built examples with a real
//! replica set and a real daemon.

#![allow(clippy::unwrap_used, reason = "a failing fixture should fail the test")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use leasehold_testbed::daemon::boottime_ns;
use leasehold_testbed::{Daemon, DaemonTimings, ReplicaSet, SharedSet, without_boot_id};

const PROGRAM: &str = env!("CARGO_BIN_EXE_leasehold");

static SET: SharedSet = SharedSet::new(ReplicaSet::builder);

/// Cargo puts examples into a directory next to the programs.
fn example(name: &str) -> PathBuf {
    let built = Path::new(PROGRAM).with_file_name("examples").join(name);
    assert!(
        built.exists(),
        "{name} is not built: cargo build --workspace --examples"
    );
    built
}

fn shown(name: &str, argument: &str) -> Output {
    // An example that cannot reach MongoDB waits indefinitely.
    let output = Command::new("timeout")
        .arg("60")
        .arg(example(name))
        .arg(argument)
        .output();
    output.unwrap()
}

async fn lines(name: &str) -> Vec<String> {
    let set = SET.get().await;
    let output = shown(name, &set.uri());
    assert!(output.status.success(), "{output:?}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    stdout.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn the_elector_runs_with_one_token_and_releases_the_lease() {
    // Keeps the set running, because the second run needs the lease document of the first run.
    let _kept = SET.get().await;
    for token in 1..=2 {
        let pages = [1, 2, 3].map(|page| format!("page {page}, token {token}"));
        let expected: Vec<_> = pages.into_iter().chain(["released".to_owned()]).collect();
        assert_eq!(lines("elector").await, expected);
    }
}

#[tokio::test]
async fn the_job_holds_the_lock_and_releases_it() {
    for _ in 0..2 {
        let lines = lines("lock").await;
        assert_eq!(lines.len(), 4, "{lines:?}");
        assert!(lines[0].starts_with("page 1, token "), "{lines:?}");
        assert_eq!(lines[3], "released");
    }
}

#[tokio::test]
async fn the_client_of_the_program_is_used_and_stays_open() {
    let lines = lines("own_client").await;
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert!(lines[2].starts_with("page 3, token "), "{lines:?}");
    assert_eq!(lines[3], "released");
}

#[tokio::test]
async fn the_late_write_is_refused() {
    let expected = [
        "written by the holder",
        "the late write is refused",
        "state: paid",
    ];
    assert_eq!(lines("fenced").await, expected);
}

#[tokio::test]
async fn a_status_is_trusted_until_its_deadline() {
    let set = SET.get().await;
    let daemon = Daemon::builder(PROGRAM)
        .lease("example-status")
        .uri(&set.uri())
        .timings(DaemonTimings::SHORT)
        .leading(std::time::Duration::from_secs(60))
        .await;
    let directory = daemon.status_directory().display().to_string();
    let token = daemon.status()["token"].to_string();
    let leads = shown("read_status", &directory);
    let said = String::from_utf8_lossy(&leads.stdout).into_owned();
    assert_eq!(said, format!("leader, token {token}\n"));
    let example = example("read_status");
    if let Some(output) = without_boot_id(&[example.to_str().unwrap(), &directory]) {
        assert_eq!(output.status.code(), Some(1), "{output:?}");
    }
    // The frozen daemon does not update its file, which still says leader until the deadline.
    daemon.stop();
    let status = daemon.status();
    let deadline = status["valid_until_boottime_ns"].as_u64().unwrap();
    while shown("read_status", &directory).status.success() {
        assert!(
            boottime_ns() < deadline + 60_000_000_000,
            "the example never ends"
        );
    }
    assert!(boottime_ns() >= deadline, "the example ended early");
}
