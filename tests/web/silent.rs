//! Goal: for a silent lease, the page shows whether a candidate answers. The server asks again at a
//! slow rate, and only if a page can show the answer.

use std::time::Duration;

use futures_util::StreamExt;
use leasehold_testbed::{DaemonTimings, ReplicaSet, Stage, pid};
use mongodb::bson::{Bson, DateTime, Document, Uuid, doc};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::look::size;
use crate::page::{cell, open_details, shows};
use crate::production::{ago, collection};
use crate::server::{Events, LONG, Server, eventually, shared_stage, stage_of};

const UNANSWERED: &str = "no candidate answers";

/// Inserts a lease whose holder has not written for six minutes.
pub(crate) async fn insert_silent(stage: &Stage, name: &str, fields: Document) {
    let holder = doc! {
        "identity": "gone-0", "session": Uuid::new(), "claim": Uuid::new(), "token": 3_i64,
        "lease_duration_ms": 330_000_i64, "acquired_at": ago(900.0), "renewed_at": ago(372.0),
    };
    let mut lease = doc! {
        "_id": name, "schema": 1, "kind": "lease", "token": 3_i64, "revision": Uuid::new(),
        "holder": holder, "paused": false, "request": null, "reserved_for": null, "history": [],
    };
    lease.extend(fields);
    collection(stage).insert_one(lease).await.unwrap();
}

async fn until_roll_call(events: &mut Events, lease: &str, text: &str) {
    events
        .until(&format!("{lease}: {text}"), |events, _| {
            let shown = events.documents.get(lease).map(|it| &it["roll_call"]);
            shown
                .and_then(Value::as_str)
                .is_some_and(|it| it.starts_with(text))
        })
        .await;
}

/// Returns the leases of all roll calls so far, in their order.
async fn called(
    stage: &Stage,
    mut changes: mongodb::change_stream::ChangeStream<
        mongodb::change_stream::event::ChangeStreamEvent<Document>,
    >,
) -> Vec<String> {
    let marker = Uuid::new().to_string();
    collection(stage)
        .insert_one(doc! { "_id": &marker })
        .await
        .unwrap();
    let mut called = Vec::new();
    while let Some(change) = changes.next().await {
        let change = change.unwrap();
        let key = change.document_key.unwrap_or_default();
        let name = key.get_str("_id").unwrap_or_default().to_owned();
        if name == marker {
            break;
        }
        // A roll call sets the whole field `roll_call`; an answer changes only `roll_call.present`.
        let update = change.update_description.map(|it| it.updated_fields);
        if update.is_some_and(|fields| fields.contains_key("roll_call")) {
            called.push(name);
        }
    }
    called
}

#[tokio::test]
async fn candidates_are_asked_in_each_silence_for_all_browsers_at_once() {
    let stage = shared_stage().await.timings(DaemonTimings::KUBERNETES);
    let a = stage.candidate("a").leading(LONG).await;
    let b = stage.candidate("b").following("a", LONG).await;
    b.wait_stream().await;
    let lease = stage.lease();
    let changes = collection(&stage).watch().await.unwrap();
    a.kill();
    stage
        .stored()
        .set(doc! { "holder.renewed_at": ago(372.0) })
        .await;
    insert_silent(&stage, "paused", doc! { "paused": true }).await;
    let exporter = Server::start(&stage, &["--metrics-only"]).await;
    eventually("the exporter sees the silence", async || {
        let silent = format!("leasehold_collection_lease_silent{{lease=\"{lease}\"}} 1");
        exporter.get("/metrics").await.body.contains(&silent)
    })
    .await;
    let server = Server::start(&stage, &[]).await;
    let (mut one, mut two) = (server.events().await, server.events().await);
    for events in [&mut one, &mut two] {
        until_roll_call(events, lease, "1 candidate answers: b").await;
    }
    one.until_holder(lease, "b").await;
    assert_eq!(one.documents[lease]["roll_call"], Value::Null);
    b.kill();
    for events in [&mut one, &mut two] {
        until_roll_call(events, lease, UNANSWERED).await;
    }
    assert_eq!(one.documents["paused"]["roll_call"], Value::Null);
    let details = server.get(&format!("/document?name={lease}")).await.json();
    assert_eq!(details["candidates"], json!([]), "{details}");
    assert_eq!(called(&stage, changes).await, [lease, lease]);
}

#[tokio::test]
async fn a_candidate_that_starts_during_the_silence_is_shown() {
    let stage = shared_stage().await;
    let lease = stage.lease();
    insert_silent(&stage, lease, doc! {}).await;
    let server = Server::start(&stage, &[]).await;
    let mut events = server.events().await;
    until_roll_call(&mut events, lease, UNANSWERED).await;
    // An unhealthy candidate does not take over, but answers roll calls.
    let check = "--workload-health-command=false";
    let _b = stage.candidate("b").flag(check).start();
    until_roll_call(&mut events, lease, "1 candidate answers: b (unhealthy)").await;
    let details = server.get(&format!("/document?name={lease}")).await.json();
    assert_eq!(details["candidates"], json!(["b"]), "{details}");
    assert_eq!(details["present"], "b (unhealthy)", "{details}");
}

#[tokio::test]
async fn a_role_without_update_sees_why_candidates_were_not_asked() {
    let stage = stage_of(ReplicaSet::builder().members(1).auth().start().await);
    insert_silent(&stage, "orders", doc! {}).await;
    let (database, name) = (stage.database(), stage.collection());
    let rights = ["find", "changeStream"];
    let reader = stage
        .set()
        .add_user_with_actions("reader", database, name, &rights)
        .await;
    let server = Server::start_with(&stage, &stage.set().uri_for(&reader), &[]).await;
    let mut events = server.events().await;
    until_roll_call(
        &mut events,
        "orders",
        "candidates not asked: not authorized",
    )
    .await;
    let shown = events.documents["orders"]["roll_call"].to_string();
    assert!(!shown.contains("reader"), "names a user: {shown}");
    let stored = collection(&stage).find_one(doc! {}).await.unwrap().unwrap();
    assert_eq!(stored.get("roll_call"), None::<&Bson>);
    stage
        .set()
        .grant("reader", database, name, &["update"])
        .await;
    until_roll_call(&mut events, "orders", UNANSWERED).await;
}

#[tokio::test]
async fn the_evidence_of_a_gone_holder_is_readable_at_each_width() {
    let Some(mut browser) = Browser::start().await else {
        return;
    };
    let stage = shared_stage().await;
    insert_silent(&stage, "payments-us", doc! {}).await;
    insert_silent(&stage, "stopped", doc! { "paused": true }).await;
    let server = Server::start(&stage, &[]).await;
    size(&mut browser, 1280, 900).await;
    browser.open(&server.origin()).await;
    let notes = cell("payments-us", "notes");
    browser
        .until(&format!("{notes}?.includes('; {UNANSWERED}')"))
        .await;
    let text = browser.value(&notes).await;
    let text = text.as_str().unwrap();
    assert!(text.starts_with("last renewal 6m"), "{text}");
    assert!(text.contains(" ago by the holder's clock; "), "{text}");
    let note = "document.querySelector('#rows .gone .notes bdi')";
    for width in [1280, 1181, 1024, 390] {
        size(&mut browser, width, 900).await;
        // A role without update makes the longest sentence.
        let is_whole = format!(
            "(() => {{ /* {width} px */ const note = {note}, text = note.textContent; \
             const refused = text.replace('{UNANSWERED}', 'candidates not asked: not authorized (Unauthorized, code 13)'); \
             const fits = (shown) => {{ note.textContent = shown; return note.scrollHeight <= note.clientHeight \
             && note.getBoundingClientRect().bottom <= note.closest('tr').getBoundingClientRect().bottom; }}; \
             const all = fits(refused) && fits(text); note.textContent = text; return all; }})()"
        );
        browser.until(&is_whole).await;
    }
    let paused = cell("stopped", "notes");
    let nobody = "no candidate takes over while the lease is paused";
    browser
        .until(&format!("{paused}?.includes('; {nobody}; paused')"))
        .await;
    // Before the first data, the count is empty.
    let is_apart = "(() => { const top = (at) => document.querySelector(at).getBoundingClientRect(); \
         document.querySelector('#count').textContent = ''; \
         return top('#legend summary').top >= top('#search').bottom; })()";
    assert_eq!(browser.value(is_apart).await, true);
    open_details(&mut browser, "payments-us").await;
    let evidence = "document.querySelector('#evidence').textContent";
    browser
        .until(&format!("{evidence}.endsWith('; {UNANSWERED}')"))
        .await;
    let facts = "document.querySelector('#facts').textContent";
    browser
        .until(&format!("{facts}.includes('none (as of the roll call ')"))
        .await;
    assert_eq!(browser.problems, [""; 0]);
    browser.close().await;
}

#[tokio::test]
async fn a_date_in_the_future_does_not_count_as_held() {
    let Some(mut browser) = Browser::start().await else {
        return;
    };
    let stage = shared_stage().await;
    insert_silent(&stage, "ahead", doc! {}).await;
    let date = DateTime::from_millis(DateTime::now().timestamp_millis() + 600_000);
    let ahead = doc! { "$set": { "holder.renewed_at": date } };
    let leases = collection(&stage);
    leases
        .update_one(doc! { "_id": "ahead" }, ahead)
        .await
        .unwrap();
    let server = Server::start(&stage, &[]).await;
    browser.open(&server.origin()).await;
    // The lease would be late only after 82 s.
    shows(&mut browser, "ahead", "state", "unknown").await;
    browser.close().await;
}

#[tokio::test]
async fn a_refused_login_is_not_logged_as_a_connection_attempt() {
    let set = ReplicaSet::builder().members(1).auth().start().await;
    let user = set.add_user("visitor", Vec::new()).await;
    let uri = set.uri_for(&user).replacen("//visitor:", "//stranger:", 1);
    let stage = stage_of(set);
    let server = Server::start_with(&stage, &uri, &[]).await;
    let refusal = "MongoDB cannot be read";
    eventually("the refusal is logged", async || server.has_logged(refusal)).await;
    // The second event comes two seconds after the first.
    let mut events = server.events().await;
    for _ in 0..2 {
        events.next().await.expect("an event");
    }
    let after = server.log_after(refusal);
    assert!(!after.contains("connecting to MongoDB"), "{after}");
}

#[tokio::test]
async fn the_log_of_a_stopped_server_blames_no_server() {
    let stage = shared_stage().await;
    let server = Server::start(&stage, &[]).await;
    server.wait_ready().await;
    let process = server.child.id().unwrap();
    pid::signal(process, Signal::STOP);
    // Longer than the timeout of the change stream.
    tokio::time::sleep(Duration::from_secs(12)).await;
    pid::signal(process, Signal::CONT);
    eventually("the stop is logged", async || {
        server.has_logged("this process did not run")
    })
    .await;
    insert_silent(&stage, "later", doc! {}).await;
    let mut events = server.events().await;
    let follows = |events: &Events, _: &Value| events.documents.contains_key("later");
    events.until("the server follows again", follows).await;
    for blame in ["MongoDB cannot be read", "MongoDB reports no changes"] {
        assert!(!server.has_logged(blame), "{blame}");
    }
}
