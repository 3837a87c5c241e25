//! Goal: a command that waits for a leader never reports a wrong outcome of its request, even if
//! another operator interferes, a signal arrives, or the connection fails.

use leasehold_testbed::wait::throughout;
use leasehold_testbed::{Daemon, DaemonTimings, Stage};
use mongodb::bson::Bson;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::process::Child;

use crate::command::{
    Answer, LONG, command_with, ended, eventually, leasehold, name, run, shared_stage, start,
    start_with, wait_stderr,
};

/// Starts a leader and freezes it, so that it applies no requests.
async fn frozen(stage: &Stage) -> Daemon {
    let a = stage.candidate("a").leading(LONG).await;
    a.stop();
    a
}

/// Starts a leader whose workload keeps running until the returned directory contains the file
/// `end`.
async fn busy(stage: &Stage) -> (Daemon, TempDir) {
    let directory = tempfile::tempdir().expect("a directory");
    let end = directory.path().join("end");
    let script = "trap '' TERM; : > \"$0.began\"; while ! test -e \"$0\"; do sleep 0.05; done";
    let a = stage
        .candidate("a")
        .workload(["sh", "-c", script, &end.display().to_string()]);
    let a = a.flag("--workload-stop-grace=120s").leading(LONG).await;
    eventually("the workload ignores SIGTERM", async || {
        directory.path().join("end.began").exists()
    })
    .await;
    (a, directory)
}

async fn wait_renewal(stage: &Stage) {
    let before = stage.stored().get().await.get("revision").cloned();
    eventually("the holder renews", async || {
        stage.stored().get().await.get("revision").cloned() != before
    })
    .await;
}

async fn wait_requested(stage: &Stage) {
    eventually("the request is in the document", async || {
        stage.stored().get().await.get("request") != Some(&Bson::Null)
    })
    .await;
}

#[tokio::test]
async fn a_request_that_another_operator_cancels_or_replaces_is_reported_with_the_name() {
    let stage = shared_stage().await;
    let a = frozen(&stage).await;
    let lease = name(&stage).await;
    let transfer = |to, by| {
        [
            "transfer",
            &lease,
            "--to",
            to,
            "--force",
            "--by",
            by,
            "--timeout",
            "60s",
        ]
    };
    let waiting = start(&stage, &transfer("b", "olga"));
    wait_requested(&stage).await;
    let cancel = ["cancel", &lease, "--by", "ops2"];
    leasehold(&stage, &cancel).await.expect(0, &[]);
    ended(waiting)
        .await
        .expect(1, &["ops2 cancelled the request"]);
    let waiting = start(&stage, &transfer("b", "olga"));
    wait_requested(&stage).await;
    let mut other = transfer("c", "ops3").to_vec();
    other.push("--no-wait");
    leasehold(&stage, &other).await.expect(0, &[]);
    ended(waiting)
        .await
        .expect(1, &["ops3 replaced the request with a transfer to c"]);
    a.cont();
}

#[tokio::test]
async fn a_transfer_to_a_holder_that_does_not_renew_is_not_reported_as_done() {
    let stage = shared_stage().await;
    let a = stage.candidate("a").leading(LONG).await;
    let lease = name(&stage).await;
    a.kill();
    let answer = leasehold(&stage, &["transfer", &lease, "--to", "a"]).await;
    answer.expect(
        1,
        &["a is recorded as the holder, but did not renew within "],
    );
}

#[tokio::test]
async fn a_signal_ends_the_wait_and_the_last_line_names_the_remedy() {
    let stage = shared_stage().await;
    let a = frozen(&stage).await;
    let lease = name(&stage).await;
    let remedy = format!("leasehold cancel {lease} withdraws it");
    let signalled = |child: &Child, signal| {
        let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        kill_process(pid.expect("it runs"), signal).expect("wait for the child");
    };
    let mut waiting = start(&stage, &["step-down", &lease]);
    wait_requested(&stage).await;
    // In a pipe, the line appears only once.
    let awaited = "requested; waiting for a to step down (1s of 10s)\n";
    wait_stderr(&mut waiting, awaited).await;
    signalled(&waiting, Signal::INT);
    ended(waiting)
        .await
        .expect(-2, &["SIGINT received", &remedy]);
    let mut waiting = start(&stage, &["step-down", &lease]);
    wait_stderr(&mut waiting, "already requested; waiting").await;
    signalled(&waiting, Signal::TERM);
    ended(waiting)
        .await
        .expect(143, &["SIGTERM received", "the request stands", &remedy]);
    leasehold(&stage, &["cancel", &lease]).await.expect(0, &[]);
    let mut waiting = start(&stage, &["pause", &lease]);
    wait_stderr(&mut waiting, "waiting for a to step down").await;
    signalled(&waiting, Signal::INT);
    let undo = format!("; to undo: leasehold resume {lease}");
    let requested = "pause requested; a has not stepped down";
    ended(waiting).await.expect(-2, &[requested, &undo]);
    a.cont();
}

#[tokio::test]
async fn a_roll_call_lasts_no_longer_than_the_timeout() {
    let stage = shared_stage().await;
    let _a = stage.candidate("a").leading(LONG).await;
    let lease = name(&stage).await;
    let arguments = ["transfer", &lease, "--to", "x", "--timeout", "2s"];
    let answer = leasehold(&stage, &arguments).await;
    let answer = answer.expect(1, &["x is not a candidate"]);
    assert!(!answer.stdout.contains("within 3s"), "{answer:?}");
}

#[tokio::test]
async fn a_leader_is_not_reported_as_expired_while_reads_fail() {
    let stage = shared_stage().await.timings(DaemonTimings::DEMO);
    let (_a, _directory) = busy(&stage).await;
    let lease = name(&stage).await;
    let request = ["step-down", &lease, "--no-wait"];
    leasehold(&stage, &request).await.expect(0, &[]);
    let proxy = stage.set().proxy();
    let arguments = [
        "step-down",
        &lease,
        // The timeout exceeds the lease duration of 6 s.
        "--timeout",
        "9s",
        "--mongodb-operation-timeout",
        "1s",
    ];
    let mut waiting = start_with(&stage.set().proxied_uri(&proxy), &stage, &arguments);
    wait_stderr(&mut waiting, "already requested; waiting").await;
    proxy.stall();
    let answer = ended(waiting).await;
    let answer = answer.expect(3, &["step-down under way", "cannot be read, so"]);
    assert!(!answer.stdout.contains("expired"), "{answer:?}");
    wait_renewal(&stage).await;
    assert_eq!(stage.stored().holder().await.as_deref(), Some("a"));
}

#[tokio::test]
async fn a_pause_waits_while_reads_fail() {
    let stage = shared_stage().await.timings(DaemonTimings::DEMO);
    let (_a, directory) = busy(&stage).await;
    let lease = name(&stage).await;
    let request = ["pause", &lease, "--no-wait"];
    leasehold(&stage, &request).await.expect(0, &[]);
    let proxy = stage.set().proxy();
    let arguments = [
        "pause",
        &lease,
        "--timeout",
        "120s",
        "--mongodb-operation-timeout",
        "1s",
    ];
    let mut waiting = start_with(&stage.set().proxied_uri(&proxy), &stage, &arguments);
    wait_stderr(&mut waiting, "already requested; waiting").await;
    proxy.stall();
    // The leader keeps renewing, but the command cannot read the lease for three lease durations.
    let blind = 3 * DaemonTimings::DEMO.lease_duration;
    throughout(blind, "the command waits", async || {
        waiting.try_wait().expect("wait for the child").is_none()
    })
    .await;
    wait_renewal(&stage).await;
    proxy.resume();
    std::fs::write(directory.path().join("end"), "").expect("written");
    ended(waiting)
        .await
        .expect(0, &["paused; a stepped down, "]);
}

#[tokio::test]
async fn an_attempt_with_an_unknown_outcome_stays_unknown() {
    let stage = shared_stage().await;
    let a = stage.candidate("a").leading(LONG).await;
    let lease = name(&stage).await;
    let proxy = stage.set().proxy();
    proxy.hold_requests_containing("findAndModify");
    let arguments = [
        "step-down",
        &lease,
        "--timeout",
        "8s",
        "--mongodb-operation-timeout",
        "1s",
    ];
    let uri = stage.set().proxied_uri(&proxy);
    let answer = tokio::spawn(run(command_with(&uri, &stage, &arguments)));
    eventually("the first attempt is sent", async || {
        proxy.held_requests() > 0
    })
    .await;
    // From now on, attempts fail before they are sent, so only the first attempt can have an
    // unknown outcome.
    proxy.cut();
    let answer = answer.await.expect("no panic");
    answer.expect(69, &["the outcome is not known", "leasehold describe"]);
    assert!(a.leads());
}

#[tokio::test]
async fn a_resume_waits_until_a_holder_that_steps_down_has_a_successor() {
    let stage = shared_stage().await.timings(DaemonTimings::DEMO);
    let (a, directory) = busy(&stage).await;
    let b = stage.candidate("b").following("a", LONG).await;
    b.wait_stream().await;
    let lease = name(&stage).await;
    let undo =
        format!("pause requested; a has not stepped down; to undo: leasehold resume {lease}");
    let pause = ["pause", &lease, "--no-wait"];
    leasehold(&stage, &pause).await.expect(0, &[&undo]);
    a.wait_role("stopping", LONG).await;
    let resume = ["resume", &lease, "--timeout", "60s"];
    let mut waiting = start(&stage, &resume);
    wait_stderr(&mut waiting, "resumed; waiting for the next leader (1s of ").await;
    wait_renewal(&stage).await;
    wait_renewal(&stage).await;
    assert!(waiting.try_wait().expect("wait for the child").is_none());
    std::fs::write(directory.path().join("end"), "").expect("written");
    ended(waiting).await.expect(0, &[" leads with token 2, "]);
}

/// Stops the leader, pauses and resumes the lease, and continues the leader once the resume has
/// started its roll call. Returns the answer of the resume.
async fn resumed_while_stopped(stage: &Stage, leader: &Daemon) -> Answer {
    let lease = name(stage).await;
    leader.stop();
    leasehold(stage, &["pause", &lease, "--no-wait"])
        .await
        .expect(0, &["pause requested"]);
    let waiting = start(stage, &["resume", &lease, "--timeout", "60s"]);
    eventually("the candidates are asked", async || {
        stage.stored().get().await.contains_key("roll_call")
    })
    .await;
    leader.cont();
    ended(waiting).await
}

#[tokio::test]
async fn a_resume_after_a_pause_that_the_leader_never_saw_is_done_at_once() {
    let stage = shared_stage().await.timings(DaemonTimings::DEFAULT);
    let (proxy, polling) = stage.proxied();
    proxy.hold_requests_containing("$changeStream");
    let a = polling.candidate("a").leading(LONG).await;
    let answer = resumed_while_stopped(&stage, &a).await;
    answer.expect(0, &["a still leads with token 1, "]);
    assert!(a.leads());
}

#[tokio::test]
async fn a_resume_does_not_report_a_leader_that_has_just_seen_the_pause() {
    let stage = shared_stage().await.timings(DaemonTimings::DEFAULT);
    let a = stage.candidate("a").leading(LONG).await;
    a.wait_stream().await;
    let _b = stage.candidate("b").following("a", LONG).await;
    // The stream reports the pause, the resume and the roll call at once.
    let answer = resumed_while_stopped(&stage, &a).await.expect(0, &[]);
    let leads_on = answer.stdout.contains("a still leads with token 1, ");
    assert!(
        leads_on || answer.stdout.contains(" leads with token 2, "),
        "{answer:?}"
    );
    wait_renewal(&stage).await;
    wait_renewal(&stage).await;
    let token = if leads_on { 1 } else { 2 };
    assert_eq!(stage.stored().token().await, token, "{answer:?}");
}
