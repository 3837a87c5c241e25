//! Goal: `repair` raises the token of a restored lease, but changes nothing while a candidate
//! writes to the lease.

use leasehold_testbed::DaemonTimings;
use mongodb::bson::doc;

use crate::command::{LONG, ended, leasehold, name, shared_stage, start, wait_stderr};

#[tokio::test]
async fn a_restored_lease_gets_the_token_and_the_next_leader_a_higher_one() {
    let stage = shared_stage().await;
    let a = stage.candidate("a").leading(LONG).await;
    let lease = name(&stage).await;
    a.kill();
    let arguments = [
        "repair",
        &lease,
        "--token-at-least",
        "4711",
        "--reason",
        "restored",
    ];
    let repaired = leasehold(&stage, &arguments).await;
    repaired.expect(
        0,
        &["token raised from 1 to 4711; a is still recorded as the holder"],
    );
    leasehold(&stage, &arguments)
        .await
        .expect(0, &["token 4711 is not below 4711; nothing written"]);
    stage
        .candidate("b")
        .start()
        .wait_leads_with(4_712, LONG)
        .await;
    let document = stage.stored().get().await;
    let actions = document.get_array("actions").expect("a list");
    let action = actions[0].as_document().expect("a document");
    assert_eq!(action.get_str("action").ok(), Some("raise_token"));
    assert_eq!(action.get_str("reason").ok(), Some("restored"));
}

#[tokio::test]
async fn a_lease_that_is_renewed_is_not_repaired() {
    let stage = shared_stage().await;
    let a = stage.candidate("a").leading(LONG).await;
    let lease = name(&stage).await;
    let refused = leasehold(&stage, &["repair", &lease, "--token-at-least", "50"]).await;
    refused.expect(
        1,
        &["in use: a writes to it; nothing written. Stop all candidates first"],
    );
    assert!(a.leads());
    assert_eq!(stage.stored().token().await, 1);
}

#[tokio::test]
async fn a_free_lease_with_a_candidate_is_not_repaired() {
    let stage = shared_stage().await.timings(DaemonTimings::SHORT);
    let a = stage.candidate("a").leading(LONG).await;
    let lease = name(&stage).await;
    leasehold(&stage, &["pause", &lease]).await.expect(0, &[]);
    a.wait_role("paused", LONG).await;
    let repair = ["repair", &lease, "--token-at-least", "50"];
    let mut repairing = start(&stage, &repair);
    // A candidate that leads before the first read would be refused as a leader that renews.
    wait_stderr(&mut repairing, "verifying for up to").await;
    stage.stored().set(doc! { "paused": false }).await;
    a.wait_leads(LONG).await;
    ended(repairing).await.expect(1, &[]);
}

#[tokio::test]
async fn a_creation_is_recorded_with_its_author_and_answered_as_json() {
    let stage = shared_stage().await;
    let repair = |options: &[&'static str]| {
        let mut arguments = vec!["repair", "orders", "--token-at-least", "7", "-o", "json"];
        arguments.extend(options);
        arguments
    };
    let arguments = repair(&["--create", "--by", "olga", "--reason", "moved"]);
    let created = leasehold(&stage, &arguments).await.expect(0, &[]).json();
    for (field, value) in [
        ("lease", "orders"),
        ("action", "create"),
        ("result", "done"),
        ("message", "created with token 7, free"),
    ] {
        assert_eq!(created[field], value, "{created}");
    }
    assert!(created["took_ms"].is_number(), "{created}");
    let described = leasehold(&stage, &["describe", "orders", "-o", "json"]).await;
    let described = described.expect(0, &[]).json();
    let action = &described["actions"][0];
    for (field, value) in [("action", "create"), ("by", "olga"), ("reason", "moved")] {
        assert_eq!(action[field], value, "{described}");
    }
    assert_eq!(action["token"], 7);
    let again = leasehold(&stage, &repair(&[])).await.expect(0, &[]).json();
    assert_eq!(again["result"], "already", "{again}");
    assert_eq!(again["action"], "raise_token", "{again}");
}

#[tokio::test]
async fn a_lease_that_is_deleted_meanwhile_is_reported_as_deleted() {
    let stage = shared_stage().await;
    let create = ["repair", "orders", "--token-at-least", "1", "--create"];
    leasehold(&stage, &create).await.expect(0, &[]);
    let mut repairing = start(&stage, &["repair", "orders", "--token-at-least", "50"]);
    // The command watches a free lease for the default lease duration before it repairs the lease.
    wait_stderr(&mut repairing, "verifying for up to 24s").await;
    stage.stored().delete().await;
    let part = "deleted or replaced meanwhile; nothing written; pass --create";
    ended(repairing).await.expect(1, &[part]);
    assert_eq!(stage.stored().try_get().await, None);
}
