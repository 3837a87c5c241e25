//! Goal: verify the daemon fixture, so that a failure can be attributed to the daemon. Method:
//! start a simulated daemon, which implements the daemon's files and signals.

#![allow(clippy::unwrap_used)] // A failed unwrap fails the test.

use std::path::PathBuf;
use std::time::Duration;

use leasehold_testbed::process::write_program;
use leasehold_testbed::{Daemon, DaemonTimings, Scratch};

const LONG: Duration = Duration::from_secs(10);

/// Writes its arguments to the log, and reports "leader" until SIGTERM, then "not leader".
const STAND_IN: &str = r#"#!/bin/sh
echo "$@" >&2
echo '{"level":"INFO","message":"started"}' >&2
while [ "$1" != --status-directory ]; do shift; done
mkdir -p "$2"
say() {
    echo "{\"role\":\"$1\",\"leader\":$2,\"boot_id\":\"$(cat /proc/sys/kernel/random/boot_id)\"," \
        "\"valid_until_boottime_ns\":9000000000000000000}" > "$dir/next"
    mv "$dir/next" "$dir/status.json"
}
dir=$2
trap 'say stopping false; exit 0' TERM
say leader true
while :; do sleep 0.01; done
"#;

fn stand_in(scratch: &Scratch) -> PathBuf {
    let path = scratch.path().join("leasehold");
    write_program(&path, STAND_IN);
    path
}

#[tokio::test]
async fn a_daemon_is_started_watched_ended_and_started_again() {
    let scratch = Scratch::new();
    let mut daemon = Daemon::builder(stand_in(&scratch))
        .identity("anna")
        .uri("mongodb://127.0.0.1:1/")
        .timings(DaemonTimings::KUBERNETES)
        .leading(LONG)
        .await;
    assert!(daemon.leads());
    daemon.term();
    daemon.wait_role("stopping", LONG).await;
    assert_eq!(daemon.wait_exit(LONG).await, 0);
    assert!(!daemon.leads());
    daemon.restart_same_directory();
    daemon.wait_leads(LONG).await;
    daemon.kill();
    assert_eq!(daemon.wait_exit(LONG).await, 137);
    let logs = daemon.logs();
    for part in [
        "run --lease orders --identity anna --status-directory ",
        "--lease-duration=15000ms --lease-renew-deadline=10000ms",
        "--mongodb-uri-file ",
    ] {
        assert!(logs.contains(part), "{logs}");
    }
    assert!(
        !logs.contains("mongodb://"),
        "the connection string is not on the command line"
    );
    assert_eq!(daemon.log_records().len(), 2);
}

#[tokio::test]
async fn a_failed_wait_prints_status_and_log() {
    let scratch = Scratch::new();
    let daemon = Daemon::builder(stand_in(&scratch)).leading(LONG).await;
    let waited = daemon
        .try_wait_until(|_| false, Duration::from_millis(20))
        .await;
    let text = waited.unwrap_err().to_string();
    assert!(
        text.contains("\"role\":\"leader\"") && text.contains("started"),
        "{text}"
    );
    daemon.kill();
    let waited = daemon.try_wait_until(|_| false, LONG).await;
    assert!(waited.unwrap_err().to_string().contains("exited with 137"));
    assert!(daemon.http("/livez").await.is_err());
}
