//! Goal: `leasehold bury` releases the lease of a killed daemon, so that another replica leads
//! immediately. Without proof that the daemon has exited, `bury` changes nothing and needs no
//! MongoDB (I8).

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold_testbed::daemon::{boottime_ns, nanos};
use leasehold_testbed::{Daemon, DaemonTimings};

use crate::command::{Answer, Files, leasehold};
use crate::contest::{Contest, LONG, PROGRAM};

/// The lease does not expire during the test.
pub(crate) const NEVER_EXPIRES: DaemonTimings = DaemonTimings {
    lease_duration: Duration::from_secs(600),
    renew_deadline: Duration::from_secs(20),
    operation_timeout: Duration::from_secs(4),
    ..DaemonTimings::SHORT
};
/// No server listens on this port.
const NOWHERE: &str = "mongodb://127.0.0.1:1/?replicaSet=rs0";

fn bury_with(lease: &str, directory: &Path, uri: &str, flags: &[&str]) -> Answer {
    bury_at(NEVER_EXPIRES, lease, directory, uri, flags)
}

fn bury_at(
    timings: DaemonTimings,
    lease: &str,
    directory: &Path,
    uri: &str,
    flags: &[&str],
) -> Answer {
    let mut arguments = vec!["bury", directory.to_str().unwrap(), "--lease", lease];
    let timings = timings.flags();
    arguments.extend(timings.iter().map(String::as_str));
    arguments.extend(flags);
    leasehold(&arguments, &[("LEASEHOLD_MONGODB__URI", uri)])
}

/// Runs `bury` without a server, so that an attempt to reach MongoDB fails.
fn bury_offline(lease: &str, directory: &Path) -> Answer {
    bury_with(lease, directory, NOWHERE, &["--timeout=1s"])
}

#[track_caller]
fn assert_nothing_to_release(answer: &Answer, why: &str) {
    assert_eq!(answer.code, 0, "{answer:?}");
    assert!(answer.stdout.contains("nothing to release"), "{answer:?}");
    assert!(answer.stdout.contains(why), "{answer:?}");
}

async fn killed_leader(contest: &Contest, handoff_delay: &str) -> Daemon {
    let leader = contest.candidate_with("a", NEVER_EXPIRES, handoff_delay);
    let leader = leader.leading(LONG).await;
    leader.kill();
    leader
}

fn claim_file(daemon: &Daemon) -> PathBuf {
    daemon.status_directory().join("claim")
}

/// Overwrites a part of the claim record, and keeps the file's inode.
fn overwrite(daemon: &Daemon, old: &str, new: &str) {
    let path = claim_file(daemon);
    let text = std::fs::read_to_string(&path).unwrap();
    let at = text
        .find(old)
        .unwrap_or_else(|| panic!("no {old} in {text}"));
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(new.as_bytes(), at as u64).unwrap();
}

#[tokio::test]
async fn another_replica_leads_once_the_killed_daemon_is_buried() {
    let contest = Contest::new("buried").await;
    let leader = killed_leader(&contest, "0s").await;
    let standby = contest.candidate_at("b", NEVER_EXPIRES);
    let standby = standby.following("a", LONG).await;
    let directory = leader.status_directory();
    let answer = bury_with("buried", directory, &contest.set().uri(), &[]);
    assert_eq!(answer.code, 0, "{answer:?}");
    let line = "released lease buried (token 1) of the daemon that exited\n";
    assert_eq!(answer.stdout, line);
    standby.wait_leads_with(2, LONG).await;
    assert_eq!(contest.last_ended().await.identity, "a");
    assert!(!directory.join("status.json").exists());
    // The record no longer names the claim, so the second attempt needs no MongoDB.
    assert_nothing_to_release(&bury_offline("buried", directory), "records no claim");
    standby.wait_leads_with(2, LONG).await;
}

#[tokio::test]
async fn i6_a_workload_that_may_have_read_the_deadline_gets_the_handoff_delay() {
    let contest = Contest::new("buried-next-door").await;
    let leader = killed_leader(&contest, "5s").await;
    let killed = boottime_ns();
    let (directory, uri) = (leader.status_directory(), contest.set().uri());
    let flags = ["--lease-handoff-delay=5s", "--workload-ends-first"];
    let answer = bury_with("buried-next-door", directory, &uri, &flags);
    assert_eq!(answer.code, 0, "{answer:?}");
    let waited = boottime_ns() - killed;
    assert!(waited >= nanos(Duration::from_secs(5)), "{waited} ns");
    assert_eq!(contest.stored().claim().await, None);
}

#[tokio::test]
async fn i6_a_shorter_delay_than_the_default_may_not_be_the_delay_of_the_daemon() {
    let contest = Contest::new("buried-hastily").await;
    let leader = killed_leader(&contest, "2s").await;
    let killed = boottime_ns();
    let (directory, uri) = (leader.status_directory(), contest.set().uri());
    let flags = ["--lease-handoff-delay=0s"];
    let answer = bury_with("buried-hastily", directory, &uri, &flags);
    assert_eq!(answer.code, 0, "{answer:?}");
    let waited = boottime_ns() - killed;
    assert!(waited >= nanos(Duration::from_secs(2)), "{waited} ns");
}

#[tokio::test]
async fn i8_the_directory_of_a_running_daemon_is_not_touched() {
    let contest = Contest::new("buried-alive").await;
    let leader = contest.candidate_at("a", NEVER_EXPIRES).leading(LONG).await;
    let before = std::fs::read(claim_file(&leader)).unwrap();
    let answer = bury_offline("buried-alive", leader.status_directory());
    answer.refuses_naming(&["is used by process"]);
    assert_eq!(std::fs::read(claim_file(&leader)).unwrap(), before);
    leader.stop();
    bury_offline("buried-alive", leader.status_directory()).refuses_naming(&["is used by"]);
    leader.cont();
    leader.wait_renewal(LONG).await;
    assert!(leader.leads());
}

#[tokio::test]
async fn the_record_of_another_user_is_refused_with_the_remedy() {
    if !rustix::process::geteuid().is_root() {
        leasehold_testbed::skip("needs root, to change the owner of a file");
        return;
    }
    let contest = Contest::new("buried-foreign").await;
    let leader = killed_leader(&contest, "0s").await;
    std::os::unix::fs::chown(claim_file(&leader), Some(65534), None).unwrap();
    let answer = bury_offline("buried-foreign", leader.status_directory());
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.stdout.contains("user 65534"), "{answer:?}");
}

#[tokio::test]
async fn i8_a_copied_directory_proves_nothing() {
    let contest = Contest::new("buried-copy").await;
    let leader = killed_leader(&contest, "0s").await;
    let files = Files::new();
    let copy = files.path("copy");
    let copied = Command::new("cp")
        .arg("-a")
        .args([leader.status_directory(), &copy])
        .status();
    assert!(copied.unwrap().success());
    assert_nothing_to_release(&bury_offline("buried-copy", &copy), "records no claim");
    assert!(copy.join("status.json").exists());
}

#[tokio::test]
async fn i8_the_record_of_another_boot_or_lease_or_a_damaged_one_proves_nothing() {
    let contest = Contest::new("buried-record").await;
    let leader = killed_leader(&contest, "0s").await;
    let directory = leader.status_directory();
    bury_offline("another", directory).refuses_naming(&[
        "lease.name = ",
        "belongs to lease buried-record",
        "to fix",
    ]);
    assert!(directory.join("deployment").exists());

    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let boot_id = boot_id.trim();
    let other = "00000000-0000-4000-8000-000000000000";
    overwrite(&leader, boot_id, other);
    let answer = bury_offline("buried-record", directory);
    assert_nothing_to_release(&answer, "records no claim");
    overwrite(&leader, other, boot_id);

    // The record does not show whether a command ran.
    overwrite(&leader, "none ", "nono ");
    let answer = bury_offline("buried-record", directory);
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.stdout.contains("does not show"), "{answer:?}");
    overwrite(&leader, "nono ", "none ");

    overwrite(&leader, "{\"schema\"", "\0\0\0\0\0\0\0\0\0");
    let answer = bury_offline("buried-record", directory);
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.stdout.contains("is damaged"), "{answer:?}");
    assert!(contest.stored().claim().await.is_some());
}

#[tokio::test]
async fn i8_a_status_file_that_cannot_be_removed_is_named_and_keeps_the_proof() {
    let contest = Contest::new("buried-files").await;
    let mut leader = killed_leader(&contest, "0s").await;
    let directory = leader.status_directory().to_owned();
    let file = directory.join("status.env");
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    let answer = bury_offline("buried-files", &directory);
    assert_eq!(answer.code, 1, "{answer:?}");
    let expected =
        "cannot remove status.env from the status directory: is a directory; to fix: remove it";
    assert!(answer.stdout.contains(expected), "{answer:?}");
    std::fs::remove_dir(&file).unwrap();
    let answer = bury_offline("buried-files", &directory);
    assert_eq!(
        answer.code, 69,
        "the record still names the claim: {answer:?}"
    );
    // A restarted daemon logs the reason why it waits.
    std::fs::create_dir(&file).unwrap();
    leader.restart_same_directory();
    leader
        .wait_logged("cannot remove a status file", LONG)
        .await;
    leader.wait_role("follower", LONG).await;
}

#[tokio::test]
async fn a_wrong_collection_or_an_older_lease_is_named() {
    let contest = Contest::new("buried-elsewhere").await;
    let leader = killed_leader(&contest, "0s").await;
    let (directory, uri) = (leader.status_directory(), contest.set().uri());
    let begun = boottime_ns();
    for flag in [
        "--mongodb-collection=elsewhere",
        "--mongodb-database=elsewhere",
    ] {
        let answer = bury_with("buried-elsewhere", directory, &uri, &[flag, "--timeout=1h"]);
        answer.refuses_naming(&["has no lease buried-elsewhere", "mongodb.collection"]);
    }
    let took = boottime_ns() - begun;
    assert!(took < nanos(LONG), "{took} ns");
    let answer = bury_with("buried-elsewhere", directory, &uri, &[]);
    assert_eq!(
        answer.code, 0,
        "the record still names the claim: {answer:?}"
    );
}

#[tokio::test]
async fn an_attempt_ends_when_the_lease_has_expired() {
    let contest = Contest::new("buried-expired").await;
    let short = DaemonTimings::SHORT;
    let leader = contest.candidate_at("a", short).leading(LONG).await;
    leader.kill();
    let (directory, lease) = (leader.status_directory(), "buried-expired");
    let begun = boottime_ns();
    let answer = bury_at(short, lease, directory, NOWHERE, &["--timeout=1h"]);
    let took = boottime_ns() - begun;
    assert_eq!(answer.code, 69, "{answer:?}");
    assert!(took < nanos(LONG), "{took} ns");
    let standby = contest.candidate_at("b", short);
    standby.start().wait_leads_with(2, LONG).await;
    let uri = contest.set().uri();
    let answer = bury_at(short, lease, directory, &uri, &[]);
    assert_nothing_to_release(&answer, "no longer holds it");
}

#[tokio::test]
async fn the_connection_string_may_come_from_standard_input() {
    let contest = Contest::new("buried-stdin").await;
    let leader = killed_leader(&contest, "0s").await;
    let mut bury = Command::new(PROGRAM)
        .arg("bury")
        .arg(leader.status_directory())
        .args(["--lease=buried-stdin", "--mongodb-uri-file=/dev/stdin"])
        .args(NEVER_EXPIRES.flags())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = bury.stdin.take().unwrap();
    input.write_all(contest.set().uri().as_bytes()).unwrap();
    drop(input);
    let answer = bury.wait_with_output().unwrap();
    assert!(answer.status.success(), "{answer:?}");
    assert_eq!(contest.stored().claim().await, None);
}

#[tokio::test]
async fn a_missing_directory_is_not_created() {
    let files = Files::new();
    let missing = files.path("missing");
    let answer = bury_offline("orders", &missing);
    assert_nothing_to_release(&answer, "no daemon has used");
    assert!(!missing.exists());
}

#[tokio::test]
async fn i6_a_lease_with_hooks_is_left_to_expire() {
    let contest = Contest::new("buried-hooks").await;
    let leader = killed_leader(&contest, "0s").await;
    let flags = ["--hooks-on-lead=/bin/true"];
    let answer = bury_with("buried-hooks", leader.status_directory(), NOWHERE, &flags);
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.stdout.contains("hook"), "{answer:?}");
    // The record keeps the proof for a restarted daemon.
    let text = std::fs::read_to_string(claim_file(&leader)).unwrap();
    assert!(!text.contains("\"claim\":null"), "{text}");
}

#[tokio::test]
async fn without_mongodb_the_proof_is_kept_for_a_later_attempt() {
    let contest = Contest::new("buried-later").await;
    let leader = killed_leader(&contest, "0s").await;
    let directory = leader.status_directory();
    let begun = boottime_ns();
    let answer = bury_with("buried-later", directory, NOWHERE, &["--timeout=3s"]);
    let took = boottime_ns() - begun;
    assert_eq!(answer.code, 69, "{answer:?}");
    assert!(took < nanos(Duration::from_secs(20)), "{took} ns");
    // The error is in JSON, like the log of the daemon in the unit.
    assert!(answer.stderr.starts_with('{'), "{answer:?}");
    let expected = "lease buried-later (token 1) not released";
    assert!(answer.stderr.contains(expected), "{answer:?}");
    let answer = bury_with("buried-later", directory, &contest.set().uri(), &[]);
    assert_eq!(answer.code, 0, "{answer:?}");
    assert_eq!(contest.stored().claim().await, None);
}
