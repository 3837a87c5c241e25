//! Goal: a retired lease disappears from lists until a candidate writes to it again, and never
//! issues a token twice. A lease that is in use cannot be retired.

use leasehold::store::mongo::operators::{Acted, ActionKind};
use leasehold_testbed::{DaemonTimings, Stage};
use mongodb::bson::{Bson, doc};

use crate::command::{LONG, eventually, leasehold, name, shared_stage};
use crate::guarded::{action, collection, seen};

async fn retire(stage: &Stage, lease: &str, code: i32, part: &str) {
    let retired = leasehold(stage, &["leases", "retire", lease, "--by", "olga"]).await;
    retired.expect(code, &[part]);
}

/// Returns each listed lease's state, and true if the lease is retired.
async fn listed(stage: &Stage, flags: &[&str]) -> Vec<(String, bool)> {
    let arguments = [&["leases", "-o", "json"], flags].concat();
    let listed = leasehold(stage, &arguments).await.expect(0, &[]).json();
    let leases = listed.as_array().expect("a list").iter();
    let states = leases.map(|lease| {
        let state = lease["state"].as_str().expect("a state").to_owned();
        (state, lease["retired"].as_bool().expect("a boolean"))
    });
    states.collect()
}

fn states<const N: usize>(states: [(&str, bool); N]) -> Vec<(String, bool)> {
    states
        .map(|(state, retired)| (state.to_owned(), retired))
        .to_vec()
}

#[tokio::test]
async fn a_retired_lease_is_hidden_and_its_next_leader_gets_a_higher_token() {
    let stage = shared_stage().await;
    for candidate in ["a", "b"] {
        let leader = stage.candidate(candidate).leading(LONG).await;
        leader.term_and_exit(LONG).await;
    }
    let lease = name(&stage).await;
    assert_eq!(stage.stored().token().await, 2);
    retire(&stage, &lease, 0, "retired; its token 2 is kept").await;
    assert_eq!(stage.stored().token().await, 2, "the token stays");
    assert_eq!(stage.stored().history().await.len(), 1, "the last leader");
    retire(&stage, &lease, 0, "retired already; nothing written").await;

    assert_eq!(listed(&stage, &[]).await, []);
    assert_eq!(
        listed(&stage, &["--all"]).await,
        states([("retired", true)])
    );
    let text = leasehold(&stage, &["leases"]).await;
    text.expect(0, &["no leases in ", "1 retired lease not shown (--all)"]);
    let all = leasehold(&stage, &["leases", "--all"]).await;
    let all = all.expect(0, &["retired"]);
    assert!(!all.stderr.contains("not shown"), "{all:?}");
    let described = leasehold(&stage, &["describe", &lease]).await;
    described.expect(0, &["retire", "olga", "Token:     2\n"]);

    // An acquisition ends the retirement. No option or command is needed.
    let c = stage.candidate("c").start();
    c.wait_leads_with(3, LONG).await;
    assert_eq!(listed(&stage, &[]).await, states([("held", false)]));
    c.term_and_exit(LONG).await;
    assert_eq!(listed(&stage, &[]).await, states([("free", false)]));
}

#[tokio::test]
async fn a_lease_of_a_killed_holder_is_retired_after_its_lease_duration() {
    let stage = shared_stage().await;
    let a = stage.candidate("a").leading(LONG).await;
    let lease = name(&stage).await;
    a.kill();
    retire(
        &stage,
        &lease,
        0,
        "waiting up to 3s to see if the holder renews",
    )
    .await;
    assert_eq!(listed(&stage, &[]).await, []);
    assert_eq!(stage.stored().token().await, 1);
    let b = stage.candidate("b").start();
    b.wait_leads_with(2, LONG).await;
    assert_eq!(listed(&stage, &[]).await, states([("held", false)]));
}

#[tokio::test]
async fn a_lease_of_a_killed_holder_with_a_candidate_is_not_retired() {
    let stage = shared_stage().await.timings(DaemonTimings::KUBERNETES);
    let a = stage.candidate("a").leading(LONG).await;
    // An unhealthy candidate does not take over, but answers roll calls.
    let check = "--workload-health-command=false";
    let b = stage.candidate("b").flag(check).start();
    b.wait_stream().await;
    let lease = name(&stage).await;
    a.kill();
    let refusal = "in use: candidates answer (b (unhealthy)); nothing written";
    retire(&stage, &lease, 1, refusal).await;
}

#[tokio::test]
async fn a_lease_in_use_is_not_retired() {
    let stage = shared_stage().await;
    let a = stage.candidate("a").leading(LONG).await;
    let lease = name(&stage).await;
    retire(&stage, &lease, 1, "in use: candidates answer (a)").await;
    leasehold(&stage, &["leases", "retire", &lease, "--force"])
        .await
        .expect(1, &["in use: a writes to it; nothing written"]);
    leasehold(&stage, &["pause", &lease]).await.expect(0, &[]);
    let paused = format!("to fix: leasehold resume {lease} --no-wait");
    retire(&stage, &lease, 1, &paused).await;
    a.term_and_exit(LONG).await;
    leasehold(&stage, &["resume", &lease, "--no-wait"])
        .await
        .expect(0, &[]);
    let request = doc! { "kind": "step_down", "token": 1_i64, "by": "a script" };
    stage.stored().set(doc! { "request": request }).await;
    let cancel = format!("to withdraw it: leasehold cancel {lease}");
    retire(&stage, &lease, 1, &cancel).await;
    stage.stored().set(doc! { "request": Bson::Null }).await;

    // An unhealthy candidate writes nothing, but answers roll calls.
    let check = "--workload-health-command=false";
    let b = stage.candidate("b").flag(check).start();
    b.wait_stream().await;
    retire(&stage, &lease, 1, "in use: candidates answer (b").await;
    let document = stage.stored().get().await;
    let actions = document.get_array("actions").expect("a list");
    let is_retirement = |action: &Bson| {
        let action = action.as_document().expect("a document");
        action.get_str("action").is_ok_and(|it| it == "retire")
    };
    assert!(!actions.iter().any(is_retirement), "{document}");
    let forced = ["leases", "retire", &lease, "--force"];
    leasehold(&stage, &forced).await.expect(0, &["retired"]);
    assert_eq!(listed(&stage, &[]).await, []);
}

#[tokio::test]
async fn a_lease_that_was_acquired_since_it_was_seen_is_not_retired() {
    let stage = shared_stage().await;
    let a = stage.candidate("a").leading(LONG).await;
    a.term_and_exit(LONG).await;
    let lease = leasehold::election::ResourceName::new(name(&stage).await).expect("legal");
    let collection = collection(&stage);
    let before = seen(&collection, &lease).await;
    let b = stage.candidate("b").leading(LONG).await;
    let retired = collection
        .act(&lease, &before, &action(ActionKind::Retire))
        .await;
    assert_eq!((retired.outcome, retired.failure), (Acted::Rejected, None));
    assert!(b.leads());
}

#[tokio::test]
async fn a_watch_shows_a_retirement_and_leaves_retired_leases_out() {
    let stage = shared_stage().await;
    for lease in ["kept", "retired"] {
        let create = ["repair", lease, "--token-at-least", "7", "--create"];
        leasehold(&stage, &create).await.expect(0, &[]);
    }
    retire(&stage, "retired", 0, "its token 7 is kept").await;
    let (mut watch, mut lines) = crate::live::watch(&stage, &["leases", "--watch"]);
    let present = crate::live::line(&mut lines).await;
    assert_eq!(
        (&present["event"], &present["lease"]),
        (&"present".into(), &"kept".into())
    );
    retire(&stage, "kept", 0, "retired").await;
    let changed = crate::live::line(&mut lines).await;
    assert_eq!(
        (&changed["event"], &changed["lease"], &changed["retired"]),
        (&"changed".into(), &"kept".into(), &true.into()),
        "{changed}"
    );
    drop(lines);
    eventually("the watch ends", async || {
        watch.try_wait().expect("wait for the child").is_some()
    })
    .await;
}
