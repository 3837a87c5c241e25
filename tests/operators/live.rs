//! Goal: `--watch` prints one JSON line for each change and nothing for renewals, and the live
//! table always restores the terminal. A watch that was stopped, or that follows a stale change stream,
//! reports no wrong state.

use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_testbed::{DaemonTimings, ReplicaSet, Stage, pid};
use mongodb::bson::{Document, doc};
use rustix::process::Signal;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};

use crate::command::{LONG, eventually, leasehold, name, shared_stage, stage_of, start};

pub(crate) async fn line(lines: &mut Lines<BufReader<ChildStdout>>) -> Value {
    let line = tokio::time::timeout(LONG, lines.next_line()).await;
    let line = line
        .expect("a line before the timeout")
        .expect("the line is read");
    serde_json::from_str(&line.expect("another line")).expect("JSON")
}

pub(crate) fn watch(stage: &Stage, arguments: &[&str]) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut watch = start(stage, arguments);
    let lines = BufReader::new(watch.stdout.take().expect("piped")).lines();
    (watch, lines)
}

#[tokio::test]
async fn a_watch_prints_each_change_and_no_renewal() {
    let stage = shared_stage().await;
    let a = stage.candidate("a").leading(LONG).await;
    let lease = name(&stage).await;
    let (mut watch, mut lines) = watch(&stage, &["leases", "--watch"]);
    let first = line(&mut lines).await;
    assert_eq!(
        (&first["event"], &first["state"]),
        (&"present".into(), &"held".into())
    );
    for _ in 0..3 {
        a.wait_renewal(LONG).await;
    }
    leasehold(&stage, &["pause", &lease, "--no-wait"])
        .await
        .expect(0, &[]);
    let mut last = first;
    while last["paused"] != true {
        let before = last["state"].clone();
        last = line(&mut lines).await;
        // On a busy machine, a renewal may be late.
        let late = before == "late" || last["state"] == "late";
        assert!(last["paused"] == true || late, "{last}");
    }
    assert_eq!(last["event"], "changed", "{last}");
    while last["state"] != "paused" {
        last = line(&mut lines).await;
    }
    assert_eq!(last["holder"], Value::Null);
    a.kill();
    leasehold(&stage, &["resume", &lease, "--no-wait"])
        .await
        .expect(0, &[]);
    while last["state"] != "free" {
        last = line(&mut lines).await;
    }
    let b = stage.candidate("b").leading(LONG).await;
    while last["state"] != "held" {
        last = line(&mut lines).await;
    }
    b.kill();
    // An expiry changes the state without a write to the collection.
    while last["state"] != "expired" {
        last = line(&mut lines).await;
    }
    stage.stored().delete().await;
    while last["event"] != "removed" {
        last = line(&mut lines).await;
    }
    assert_eq!(last["lease"], lease);
    // The command ends when its standard output is closed, even if it has nothing to print.
    drop(lines);
    let ended = tokio::time::timeout(LONG, watch.wait())
        .await
        .expect("it ends");
    assert_eq!(ended.expect("wait for the child").code(), Some(0));
}

#[tokio::test]
async fn a_watch_that_was_stopped_does_not_report_a_live_holder_as_expired() {
    let timings = DaemonTimings::DEMO;
    let stage = shared_stage().await.timings(timings);
    let a = stage.candidate("a").leading(LONG).await;
    let lease = name(&stage).await;
    let (watch, mut lines) = watch(&stage, &["leases", "--watch"]);
    assert_eq!(line(&mut lines).await["event"], "present");
    let process = watch.id().expect("the command runs");
    pid::signal(process, Signal::STOP);
    tokio::time::sleep(timings.lease_duration + Duration::from_secs(2)).await;
    pid::signal(process, Signal::CONT);
    for _ in 0..3 {
        a.wait_renewal(LONG).await;
    }
    leasehold(&stage, &["pause", &lease, "--no-wait"])
        .await
        .expect(0, &[]);
    loop {
        let next = line(&mut lines).await;
        assert_ne!(next["state"], "expired", "{next}");
        if next["state"] == "paused" {
            break;
        }
    }
}

#[tokio::test]
async fn a_watch_whose_output_is_blocked_ends_on_a_signal() {
    let stage = shared_stage().await;
    let client = stage.set().client();
    let documents = client
        .database(stage.database())
        .collection::<Document>(stage.collection());
    // Their lines are longer than the capacity of a pipe.
    let many = (0..2_000).map(|number| doc! { "_id": format!("foreign-{number}") });
    documents.insert_many(many).await.expect("insert documents");
    let mut watch = start(&stage, &["leases", "--watch"]);
    eventually("the pipe is full", async || {
        let output = watch.stdout.as_ref().expect("piped");
        rustix::io::ioctl_fionread(output.as_fd()).expect("a pipe") > 60_000
    })
    .await;
    pid::signal(watch.id().expect("the command runs"), Signal::TERM);
    let ended = tokio::time::timeout(LONG, watch.wait())
        .await
        .expect("the command ends");
    let status = ended.expect("wait for the child");
    assert_eq!(status.code(), Some(143), "{:?}", status.signal());
}

#[tokio::test]
async fn a_watch_does_not_trust_a_stream_that_stayed_on_a_locked_member() {
    let stage = stage_of(Arc::new(ReplicaSet::start().await));
    let _early = start(&stage, &["lock", "early", "--", "sleep", "1000"]);
    let (_watch, mut lines) = watch(&stage, &["locks", "--watch"]);
    while line(&mut lines).await["state"] != "held" {}
    let (old, _) = stage.set().step_down_primary().await;
    let lock = stage.set().command(old, doc! { "fsync": 1, "lock": true });
    lock.await.expect("lock the member");
    // The third member may sync from the locked member for most of a minute. During this time no
    // majority acknowledges the acquisition.
    let _late = start(&stage, &["lock", "late", "--", "sleep", "1000"]);
    let seen = async {
        let mut next = async || lines.next_line().await.expect("the line is read");
        while !next().await.expect("another line").contains("\"late\"") {}
    };
    let seen = tokio::time::timeout(2 * LONG, seen).await;
    seen.expect("the lock that was acquired on the new primary is printed");
}
