//! Goal: if writes to the status directory fail, the leader keeps leading, counts the failures and
//! logs them once. The failures do not delay the leader's step-down, and no reader trusts a stale
//! file that still says "leader" (I4).

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use leasehold_testbed::daemon::{boottime_ns, valid_until_ns};
use leasehold_testbed::{Daemon, DaemonTimings, HungDisk, Mount, Scratch, skip};

use crate::command::refused;
use crate::contest::{Contest, LONG, eventually, records};
use crate::monitor::{Monitor, assert_one_after_the_other};

const TIMINGS: DaemonTimings = DaemonTimings::DEMO;
const FAILURES: &str = "leasehold_publish_failures_total";

#[tokio::test]
async fn with_a_full_disk_the_leader_keeps_leading_and_steps_down_in_time() {
    let Some(disk) = Mount::small_disk() else {
        return;
    };
    let contest = Contest::new("full-disk").await;
    let (old, new) = leader_on(&contest, &disk.path().join("status")).await;
    eventually("the disk is full", async || {
        disk.fill();
        file_failures(&old).await > 0.0
    })
    .await;
    goes_on_leading_and_steps_down(&contest, &old, &new).await;
}

/// Retries the removal, because a daemon may still be writing to the directory.
async fn removed(directory: &Path) {
    eventually("removed", async || fs::remove_dir_all(directory).is_ok()).await;
}

#[tokio::test]
async fn with_a_deleted_status_directory_the_leader_keeps_leading_and_steps_down_in_time() {
    let contest = Contest::new("deleted-directory").await;
    let (_scratch, directory) = below_scratch();
    let (old, new) = leader_on(&contest, &directory).await;
    removed(&directory).await;
    eventually("the path is blocked", async || {
        fs::write(&directory, "").is_ok() || fs::remove_dir_all(&directory).is_err()
    })
    .await;
    goes_on_leading_and_steps_down(&contest, &old, &new).await;
}

#[tokio::test]
async fn a_removed_status_directory_is_recreated() {
    let (contest, (_scratch, directory)) = (Contest::new("directory-again").await, below_scratch());
    let daemon = contest.candidate("a").status_directory(&directory);
    let daemon = daemon.leading(LONG).await;
    removed(&directory).await;
    let again = daemon.wait_leads(LONG).await;
    assert_eq!(again["token"], 1, "the same leadership");
    let second = ["--lease=x", "--http-listen=", "--status-directory"];
    let second = [&second[..], &[directory.to_str().unwrap()]].concat();
    let uri = ("LEASEHOLD_MONGODB__URI", "mongodb://127.0.0.1:1/");
    let refused = refused(&second, &[uri]).await;
    assert_eq!(refused.code, 78, "{}", refused.stderr);
    assert!(refused.stderr.contains("is used by process"), "{refused:?}");
}

#[tokio::test]
async fn a_hanging_disk_is_reported_and_the_leader_keeps_leading() {
    let (contest, (_scratch, directory)) = (Contest::new("hung-disk").await, below_scratch());
    let daemon = contest.candidate("a").status_directory(&directory);
    let daemon = daemon.leading(LONG).await;
    let Some(hung) = HungDisk::over(&directory) else {
        skip("needs root, to mount a disk that hangs");
        return;
    };
    let message = "status files are stale: a write to their disk has not returned";
    daemon.wait_logged(message, LONG).await;
    let [line] = &records(&daemon, message)[..] else {
        panic!("once: {}", daemon.logs());
    };
    assert_eq!(line["level"], "WARN");
    let age = "leasehold_status_file_age_seconds";
    assert!(daemon.metric(age).await >= 1.0);
    let (code, body) = daemon.http("/leader").await.unwrap();
    assert_eq!(code, 200, "{body}");
    assert!(file_failures(&daemon).await == 0.0);
    drop(hung);
    let again = daemon.wait_leads(LONG).await;
    assert_eq!(again["token"], 1, "the same leadership");
    daemon
        .wait_logged("status files are written again", LONG)
        .await;
}

#[tokio::test]
async fn i4_with_a_stale_leader_file_the_lease_is_not_released() {
    let contest = Contest::new("stuck-file").await;
    let (_scratch, directory) = below_scratch();
    let (old, new) = leader_on(&contest, &directory).await;
    let lookouts = [Monitor::on(&old), Monitor::on(&new)];
    lookouts[0].sees_leader().await;
    let Some(bound) = Mount::over(&directory) else {
        return;
    };
    eventually("the directory is read-only", async || {
        bound.make_read_only()
    })
    .await;
    let stuck = old.status();
    eventually("a write failed", async || file_failures(&old).await > 0.0).await;
    old.term();
    // The daemon exits although its file still says leader, and lets the lease expire instead of
    // releasing it.
    assert_eq!(old.wait_exit(LONG).await, 0);
    assert_eq!(old.status(), stuck, "the file did not change");
    assert!(old.leads(), "a reader of the file sees a leader");
    let leading = new.wait_leads(LONG).await;
    let said_until = valid_until_ns(&stuck).unwrap();
    assert!(TIMINGS.sent_ns(&leading) > said_until);
    let [old_seen, new_seen] = lookouts;
    assert_one_after_the_other(&old_seen.end().await, &new_seen.end().await);
    let left = records(
        &old,
        "exiting without a release because the status files still say leader; the lease will \
         expire",
    );
    assert_eq!(left.len(), 1, "{}", old.logs());
}

fn below_scratch() -> (Scratch, PathBuf) {
    let scratch = Scratch::new();
    let directory = scratch.path().join("status");
    (scratch, directory)
}

async fn leader_on(contest: &Contest, directory: &Path) -> (Arc<Daemon>, Arc<Daemon>) {
    let old = contest
        .candidate("old")
        .status_directory(directory)
        .leading(LONG)
        .await;
    let new = contest.candidate("new").following("old", LONG).await;
    (Arc::new(old), Arc::new(new))
}

async fn goes_on_leading_and_steps_down(contest: &Contest, old: &Daemon, new: &Daemon) {
    let begun = boottime_ns();
    let lease_ns = u64::try_from(TIMINGS.lease_duration.as_nanos()).unwrap();
    eventually("a lease duration has passed", async || {
        let (code, body) = old.http("/leader").await.unwrap();
        assert_eq!(
            code,
            200,
            "the leader keeps leading: {body}\n{}",
            old.logs()
        );
        boottime_ns() > begun + lease_ns
    })
    .await;
    assert!(file_failures(old).await >= 3.0, "every failure is counted");
    let warned = records(old, "failed to write the status file, retrying");
    // The daemon logs a second line only after 10 s.
    assert!((1..=2).contains(&warned.len()), "{}", old.logs());
    assert_eq!(warned[0]["level"], "WARN");

    assert_eq!(old.term_and_exit(LONG).await, 0);
    assert!(!old.leads(), "no file says leader");
    new.wait_leads(LONG).await;
    let ended = contest.last_ended().await;
    assert_eq!(ended.reason, "shutdown", "released, not expired");
    assert!(contest.stored().gap().await < TIMINGS.lease_duration / 2);
}

async fn file_failures(daemon: &Daemon) -> f64 {
    let (_, page) = daemon.http("/metrics").await.unwrap();
    let mut failures = page.lines().filter_map(|line| {
        let line = line.strip_prefix(FAILURES)?;
        let (_, value) = line.split_once("surface=\"file\"} ")?;
        value.parse().ok()
    });
    failures.next().expect("the counter exists from the start")
}
