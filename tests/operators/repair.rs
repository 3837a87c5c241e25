//! Goal: the token of a restored lease is raised, unless a candidate writes to the lease.

use leasehold_testbed::DaemonTimings;
use mongodb::bson::doc;

use crate::command::{LONG, leasehold, name, shared_stage};

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
        &["token raised from 1 to 4711; a still holds it in the document"],
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
        &["a has written to it, so nothing was changed; stop all candidates first"],
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
    let mut repairing = crate::command::start(&stage, &repair);
    stage.stored().set(doc! { "paused": false }).await;
    a.wait_leads(LONG).await;
    let ended = tokio::time::timeout(2 * LONG, repairing.wait())
        .await
        .expect("it ends");
    assert_eq!(ended.expect("it is ours").code(), Some(1));
}
