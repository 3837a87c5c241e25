//! Goal: no request is lost. Each request takes effect, is recorded with its author and reason, and
//! its command reports the outcome. A request that cannot have an effect is not written.

use leasehold_testbed::{Daemon, DaemonTimings, LeaderMonitor, Stage};
use mongodb::bson::{Bson, Document, doc};

use crate::command::{LONG, eventually, leasehold, name, shared_stage, took};

async fn pair(stage: &Stage) -> (Daemon, Daemon, LeaderMonitor) {
    let a = stage.candidate("a").leading(LONG).await;
    let b = stage.candidate("b").following("a", LONG).await;
    b.wait_stream().await;
    let witness = LeaderMonitor::of([&a, &b]);
    (a, b, witness)
}

async fn actions(stage: &Stage) -> Vec<Document> {
    let document = stage.stored().get().await;
    let actions = document.get_array("actions").cloned().unwrap_or_default();
    let actions = actions.iter().filter_map(Bson::as_document).cloned();
    actions.collect()
}

#[tokio::test]
async fn a_step_down_reports_the_next_leader_and_records_who_asked() {
    let stage = shared_stage().await;
    let (_a, b, witness) = pair(&stage).await;
    let lease = name(&stage).await;
    let arguments = [
        "step-down",
        &lease,
        "--reason",
        "node maintenance",
        "-o",
        "json",
    ];
    let answer = leasehold(&stage, &arguments).await.expect(0, &[]);
    let said = answer.json();
    assert_eq!(said["result"], "done");
    assert_eq!(
        said["leader"],
        serde_json::json!({ "identity": "b", "token": 2 })
    );
    let message = said["message"].as_str().expect("a text");
    assert!(message.starts_with("b leads with token 2, "), "{message}");
    assert!(took(&answer) < 2 * LONG);
    b.wait_leads(LONG).await;
    let actions = actions(&stage).await;
    assert_eq!(actions.len(), 1);
    assert_eq!(actions[0].get_str("action").ok(), Some("step_down"));
    assert_eq!(actions[0].get_i64("token").ok(), Some(1));
    assert_eq!(actions[0].get_str("reason").ok(), Some("node maintenance"));
    assert!(
        actions[0]
            .get_str("by")
            .expect("a name")
            .starts_with("olga@")
    );
    assert_eq!(stage.stored().reasons().await, ["requested"]);
    // MongoDB names the new leader a moment before the leader's own status does.
    eventually("b leads after a", async || witness.leaders() == ["a", "b"]).await;
}

#[tokio::test]
async fn a_lease_is_transferred_to_a_candidate_and_back() {
    let stage = shared_stage().await;
    let (_a, _b, witness) = pair(&stage).await;
    let c = stage.candidate("c").following("a", LONG).await;
    c.wait_stream().await;
    let lease = name(&stage).await;
    let transfer = |to| ["transfer", &lease, "--to", to, "--by", "ops"];
    leasehold(&stage, &transfer("c"))
        .await
        .expect(0, &["c leads with token 2"]);
    leasehold(&stage, &transfer("a"))
        .await
        .expect(0, &["a leads with token 3"]);
    assert_eq!(
        stage.stored().reasons().await,
        ["transferred", "transferred"]
    );
    // MongoDB names the new leader a moment before the leader's own status does.
    let again = async || witness.leaders() == ["a", "a"];
    eventually("a leads again, and b never led", again).await;
    assert_eq!(actions(&stage).await.len(), 2);
}

#[tokio::test]
async fn a_transfer_to_an_identity_that_is_not_a_candidate_writes_no_request() {
    let stage = shared_stage().await;
    let (a, _b, _witness) = pair(&stage).await;
    let lease = name(&stage).await;
    let refused = leasehold(&stage, &["transfer", &lease, "--to", "x"]).await;
    refused.expect(
        1,
        &[
            "x is not a candidate",
            "asking the candidates (1s of 3s)\n",
            "answers came from: a, b",
            "no request written",
        ],
    );
    let other_case = leasehold(&stage, &["transfer", &lease, "--to", "B"]).await;
    other_case.expect(1, &["B is not a candidate", "; did you mean b or a?"]);
    let same = leasehold(&stage, &["transfer", &lease, "--to", "a"]).await;
    same.expect(0, &["a holds it already; nothing written"]);
    assert_eq!(actions(&stage).await, []);
    assert!(a.leads());
    let document = stage.stored().get().await;
    assert_eq!(document.get("request"), Some(&Bson::Null));
    assert_eq!(document.get("roll_call"), None, "the roll call is removed");
    // `--force` skips the check. The lease is reserved for `x`, which does not exist, so another
    // candidate leads when the reservation ends.
    let forced = [
        "transfer",
        &lease,
        "--to",
        "x",
        "--force",
        "--reserve",
        "1s",
    ];
    leasehold(&stage, &forced)
        .await
        .expect(1, &["b leads with token 2, since x did not"]);
}

#[tokio::test]
async fn a_pause_ends_leadership_until_it_is_resumed() {
    let stage = shared_stage().await;
    let (a, b, _witness) = pair(&stage).await;
    let lease = name(&stage).await;
    let pause = ["pause", &lease, "--reason", "freeze"];
    leasehold(&stage, &pause)
        .await
        .expect(0, &["paused; a stepped down, "]);
    a.wait_role("paused", LONG).await;
    b.wait_role("paused", LONG).await;
    leasehold(&stage, &pause)
        .await
        .expect(0, &["paused already; nothing written"]);
    leasehold(&stage, &["step-down", &lease])
        .await
        .expect(1, &["paused, so no candidate leads; nothing written"]);
    leasehold(&stage, &["describe", &lease])
        .await
        .expect(0, &["Paused:    yes, by olga@", ": freeze"]);
    let resumed = leasehold(&stage, &["resume", &lease, "-o", "json"])
        .await
        .expect(0, &[]);
    assert_eq!(resumed.json()["leader"]["token"], 2);
    leasehold(&stage, &["resume", &lease])
        .await
        .expect(0, &["it is not paused; nothing written"]);
    let names: Vec<_> = actions(&stage)
        .await
        .iter()
        .map(|a| a.get_str("action").unwrap().to_owned())
        .collect();
    assert_eq!(names, ["pause", "resume"]);
}

#[tokio::test]
async fn a_pause_of_a_killed_leader_is_done_when_its_lease_has_expired() {
    let stage = shared_stage().await;
    let a = stage.candidate("a").leading(LONG).await;
    a.wait_renewal(LONG).await;
    let lease = name(&stage).await;
    a.kill();
    let answer = leasehold(&stage, &["pause", &lease]).await;
    answer.expect(0, &["a has not renewed for its lease duration"]);
}

#[tokio::test]
async fn a_step_down_of_the_only_candidate_is_under_way_and_not_failed() {
    let stage = shared_stage().await.timings(DaemonTimings::DEFAULT);
    let _a = stage.candidate("a").leading(LONG).await;
    let lease = name(&stage).await;
    let arguments = ["step-down", &lease, "--timeout", "8s", "-o", "json"];
    let answer = leasehold(&stage, &arguments).await.expect(
        3,
        &[
            "a stepped down; no candidate has acquired the lease within 8s; no other candidate answers; a may lead again in",
        ],
    );
    assert_eq!(answer.json()["result"], "under_way");
    leasehold(&stage, &["leases"])
        .await
        .expect(0, &["step-down of token 1: done"]);
    leasehold(&stage, &["describe", &lease])
        .await
        .expect(0, &["; done; the next acquisition removes the request"]);
    leasehold(&stage, &["step-down", &lease])
        .await
        .expect(1, &["no candidate leads; nothing written"]);
    leasehold(&stage, &["transfer", &lease, "--to", "a"])
        .await
        .expect(1, &["no candidate leads", "nothing written"]);
}

#[tokio::test]
async fn a_request_without_waiting_returns_at_once_and_has_its_effect() {
    let stage = shared_stage().await;
    let (_a, b, _witness) = pair(&stage).await;
    let lease = name(&stage).await;
    leasehold(&stage, &["step-down", &lease, "--no-wait"])
        .await
        .expect(0, &["step-down requested"]);
    b.wait_leads(LONG).await;
}

#[tokio::test]
async fn a_request_that_the_leader_does_not_apply_is_explained_and_can_be_withdrawn() {
    let stage = shared_stage().await;
    let (a, _b, _witness) = pair(&stage).await;
    let lease = name(&stage).await;
    leasehold(&stage, &["cancel", &lease])
        .await
        .expect(0, &["no request to cancel; nothing written"]);
    let request = doc! { "kind": "step_down", "token": 7_i64, "by": "a script" };
    stage.stored().set(doc! { "request": request }).await;
    let described = leasehold(&stage, &["describe", &lease]).await;
    described.expect(
        0,
        &[
            "step-down of token 7 requested by a script",
            "no effect: the request names token 7, but the holder has token 1",
        ],
    );
    leasehold(&stage, &["cancel", &lease])
        .await
        .expect(0, &["request withdrawn; it had no effect"]);
    assert_eq!(stage.stored().get().await.get("request"), Some(&Bson::Null));
    assert!(a.leads());
}

#[tokio::test]
async fn a_leader_whose_lease_token_was_raised_is_addressed_by_its_own_token() {
    let stage = shared_stage().await;
    let (_a, b, _witness) = pair(&stage).await;
    let lease = name(&stage).await;
    stage.stored().set(doc! { "token": 40_i64 }).await;
    leasehold(&stage, &["describe", &lease])
        .await
        .expect(0, &["a, token 1,", "Token:     40"]);
    leasehold(&stage, &["step-down", &lease])
        .await
        .expect(0, &["b leads with token 41"]);
    b.wait_leads_with(41, LONG).await;
}

#[tokio::test]
async fn candidates_without_a_change_stream_answer_a_roll_call_too() {
    let stage = shared_stage().await;
    let (proxy, polling) = stage.proxied();
    proxy.hold_requests_containing("$changeStream");
    let a = stage.candidate("a").leading(LONG).await;
    let _b = polling.candidate("b").following("a", LONG).await;
    a.wait_renewal(LONG).await;
    let lease = name(&stage).await;
    let described = ["describe", &lease, "--candidates", "-o", "json"];
    eventually("both are present", async || {
        let present = leasehold(&stage, &described).await.json();
        let present = present["candidates"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let names: Vec<_> = present.iter().map(|c| c["identity"].clone()).collect();
        names == ["a", "b"]
    })
    .await;
}

#[tokio::test]
async fn a_resume_does_not_report_a_holder_that_does_not_renew() {
    let stage = shared_stage().await.timings(DaemonTimings::DEFAULT);
    let a = stage.candidate("a").leading(LONG).await;
    let lease = name(&stage).await;
    a.stop();
    let pause = ["pause", &lease, "--timeout", "5s"];
    // Depending on the speed of the machine, `a` is late or still holds the lease.
    leasehold(&stage, &pause).await.expect(3, &[" a "]);
    let resume = ["resume", &lease, "--timeout", "5s"];
    leasehold(&stage, &resume).await.expect(
        3,
        &[
            "resumed; a is late; ",
            "; no candidate has acquired the lease within 5s",
        ],
    );
    a.cont();
}

#[tokio::test]
async fn roll_calls_at_the_same_time_miss_no_candidate() {
    let stage = shared_stage().await;
    let (_a, _b, _monitor) = pair(&stage).await;
    let lease = name(&stage).await;
    let described = ["describe", &lease, "--candidates", "-o", "json"];
    let calls = (0..4).map(|_| leasehold(&stage, &described));
    for answer in futures_util::future::join_all(calls).await {
        let asking = "asking the candidates (1s of 3s)\n";
        assert_eq!(answer.stderr, asking, "in a pipe, the line appears once");
        let candidates = answer.json()["candidates"].clone();
        let names: Vec<_> = candidates
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["identity"].clone())
            .collect();
        assert_eq!(names, ["a", "b"]);
    }
}

#[tokio::test]
async fn a_repeated_request_with_no_wait_does_not_wait() {
    let stage = shared_stage().await;
    let a = stage.candidate("a").leading(LONG).await;
    let lease = name(&stage).await;
    a.stop();
    let request = ["step-down", &lease, "--no-wait", "--timeout", "1h"];
    leasehold(&stage, &request)
        .await
        .expect(0, &["step-down requested"]);
    leasehold(&stage, &request)
        .await
        .expect(0, &["step-down requested already"]);
    a.cont();
}

#[tokio::test]
async fn the_exit_codes_of_a_cancellation_are_its_own() {
    let stage = shared_stage().await;
    let help = leasehold(&stage, &["cancel", "--help"]).await;
    let help = help.expect(
        0,
        &["Exit codes: 0 withdrawn, or no request to withdraw; 1 "],
    );
    let waits = ["under way", "how to withdraw"];
    assert!(!waits.iter().any(|it| help.stdout.contains(it)), "{help:?}");
}
