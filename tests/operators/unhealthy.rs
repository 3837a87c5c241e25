//! Goal: `transfer` never hands the lease to a candidate whose workload is unhealthy, because every
//! candidate reports its workload's health in the roll call.

use serde_json::Value;

use crate::command::{LONG, eventually, leasehold, name, shared_stage};

async fn candidates(stage: &leasehold_testbed::Stage, lease: &str) -> Vec<(Value, Value)> {
    let described = ["describe", lease, "--candidates", "-o", "json"];
    let described = leasehold(stage, &described).await.expect(0, &[]).json();
    let candidates = described["candidates"].as_array().expect("a list");
    let pairs = candidates
        .iter()
        .map(|candidate| (candidate["identity"].clone(), candidate["healthy"].clone()));
    pairs.collect()
}

#[tokio::test]
async fn a_transfer_to_an_unhealthy_candidate_is_refused() {
    let stage = shared_stage().await;
    let a = stage.candidate("a").leading(LONG).await;
    let healthy = a.directory().join("healthy");
    let check = format!("--workload-health-command=test,-f,{}", healthy.display());
    let b = stage.candidate("b").flag(&check);
    let b = b
        .flag("--workload-health-period=1s")
        .flag("--workload-health-timeout=1s")
        .following("a", LONG)
        .await;
    b.wait_stream().await;
    let lease = name(&stage).await;
    let expected = |healthy: bool| vec![("a".into(), Value::Null), ("b".into(), healthy.into())];
    eventually("b reports that it is unhealthy", async || {
        candidates(&stage, &lease).await == expected(false)
    })
    .await;
    let described = leasehold(&stage, &["describe", &lease, "--candidates"]).await;
    described.expect(0, &["a, b (unhealthy)"]);
    let transfer = ["transfer", &lease, "--to", "b"];
    leasehold(&stage, &transfer).await.expect(
        1,
        &[
            "the workload of b is unhealthy",
            "no request written",
            "--force",
        ],
    );
    assert!(a.leads());
    let forced = ["transfer", &lease, "--to", "b", "--force", "--no-wait"];
    leasehold(&stage, &forced)
        .await
        .expect(0, &["transfer to b requested"]);
    // `a` leads again once the reservation for `b` has expired and the cooldown of `a` is over.
    a.wait_leads_with(2, LONG).await;
    std::fs::write(&healthy, "").expect("written");
    eventually("b reports that it is healthy", async || {
        candidates(&stage, &lease).await == expected(true)
    })
    .await;
    leasehold(&stage, &transfer)
        .await
        .expect(0, &["b leads with token 3"]);
}
