//! Goal: the privileges find, insert, update and changeStream on the collection are sufficient. The
//! daemon names a missing privilege, and falls back to polling if only changeStream is missing.

use leasehold_testbed::{LeaderMonitor, Stage, User};
use mongodb::bson::{DateTime, doc};

use crate::entrance::{LONG, keeps_secrets, stage, stays_out};

const SUFFICIENT: [&str; 4] = ["find", "insert", "update", "changeStream"];

async fn user_with(stage: &Stage, name: &str, actions: &[&str]) -> User {
    let (database, collection) = (stage.database(), stage.collection());
    let set = stage.set();
    set.add_user_with_actions(name, database, collection, actions)
        .await
}

#[tokio::test]
async fn a_role_with_find_insert_update_and_change_stream_suffices_for_everything() {
    let stage = stage().await;
    let user = user_with(&stage, "modest", &SUFFICIENT).await;
    let uri = stage.set().uri_for(&user);
    let a = stage.candidate("a").uri(&uri).start();
    // The election creates the collection and the document.
    a.wait_leads(LONG).await;
    let b = stage.candidate("b").uri(&uri).start();
    b.wait_logged("role changed", LONG).await;
    a.wait_stream().await;
    b.wait_stream().await;
    let monitor = LeaderMonitor::of([&a, &b]);
    let request = doc! {
        "kind": "transfer", "token": 1_i64, "to": "b", "at": DateTime::now(),
    };
    let stored = stage.stored();
    stored.set(doc! { "request": request }).await;
    b.wait_leads(LONG).await;
    b.kill();
    a.wait_leads(LONG).await;
    assert_eq!(monitor.leaders(), ["a", "b", "a"]);
    // The leader confirms the deletion with a linearizable read, then recreates the document.
    stored.delete().await;
    a.wait_not_leader(LONG).await;
    a.wait_leads(LONG).await;
    a.wait_logged("lease document is older", LONG).await;
    assert_eq!(monitor.leaders(), ["a", "b", "a", "a"]);
    assert!(!a.logs().contains("not authorized"), "{}", a.logs());
    keeps_secrets(&a, &[]).await;
}

#[tokio::test]
async fn the_error_for_a_user_without_permissions_names_them() {
    let stage = stage().await;
    let user = stage.set().add_user("powerless", Vec::new()).await;
    let uri = stage.set().uri_for(&user);
    let a = stage.candidate("a").uri(&uri).start();
    a.wait_logged("not authorized", LONG).await;
    a.wait_logged("find, insert, update and changeStream", LONG)
        .await;
    stays_out(&a, "unknown").await;
    keeps_secrets(&a, &[]).await;
}

#[tokio::test]
async fn a_read_only_user_follows_and_the_log_names_the_missing_permissions() {
    let stage = stage().await;
    let user = user_with(&stage, "reader", &["find", "changeStream"]).await;
    let uri = stage.set().uri_for(&user);
    let a = stage.candidate("a").uri(&uri).start();
    a.wait_logged("not authorized", LONG).await;
    assert!(!a.leads());
    let _root = stage.candidate("root").leading(LONG).await;
    a.wait_follows("root", LONG).await;
    keeps_secrets(&a, &[]).await;
}

#[tokio::test]
async fn without_the_right_to_change_streams_a_candidate_warns_and_polls() {
    let stage = stage().await;
    let user = user_with(&stage, "poller", &["find", "insert", "update"]).await;
    let uri = stage.set().uri_for(&user);
    let a = stage.candidate("a").uri(&uri).leading(LONG).await;
    let b = stage.candidate("b").uri(&uri).start();
    for daemon in [&a, &b] {
        daemon.wait_logged("no change stream, polling", LONG).await;
        daemon.wait_logged("changeStream", LONG).await;
    }
    let monitor = LeaderMonitor::of([&a, &b]);
    a.term();
    b.wait_leads(LONG).await;
    assert_eq!(b.metric("leasehold_watch_connected").await, 0.0);
    assert_eq!(monitor.leaders(), ["a", "b"]);
    keeps_secrets(&b, &[]).await;
}
