//! Goal: the listing shows the state of each lease, never shows a frozen holder as renewing, and
//! marks documents that are not leases.

use futures_util::future::join;
use leasehold_testbed::{DaemonTimings, wait};
use mongodb::bson::doc;

use crate::command::{LONG, command_with, leasehold, name, run, shared_stage};

#[tokio::test]
async fn the_listing_shows_holders_free_and_paused_leases_and_foreign_documents() {
    let stage = shared_stage().await;
    let _a = stage.candidate("a").leading(LONG).await;
    let lease = name(&stage).await;
    let collection = stage
        .set()
        .client()
        .database(stage.database())
        .collection(stage.collection());
    for document in [
        doc! { "_id": "lock", "schema": 1, "kind": "lock", "token": 1_i64 },
        doc! { "_id": "newer", "schema": 2, "kind": "lease" },
        doc! { "_id": "other", "hello": "world" },
        doc! { "_id": 7 },
    ] {
        collection.insert_one(document).await.expect("inserted");
    }
    let _b = stage.candidate("b").start();
    wait::within(LONG, "b is registered as the standby", async || {
        stage.stored().get().await.get_document("standby").is_ok()
    })
    .await;
    leasehold(
        &stage,
        &["repair", "free", "--token-at-least", "4", "--create"],
    )
    .await
    .expect(0, &[]);
    leasehold(
        &stage,
        &["repair", "paused", "--token-at-least", "5", "--create"],
    )
    .await
    .expect(0, &[]);
    leasehold(&stage, &["pause", "paused", "--by", "olga"])
        .await
        .expect(0, &["paused; nobody led\n"]);
    let listed = leasehold(&stage, &["leases", "--observe", "4s", "-o", "json"])
        .await
        .expect(0, &[])
        .json();
    let by_name = |name: &str| {
        let list = listed.as_array().expect("a list");
        list.iter().find(|lease| lease["lease"] == name).cloned()
    };
    let held = by_name(&lease).expect("listed");
    assert_eq!(held["state"], "held");
    assert_eq!(held["holder"]["identity"], "a");
    assert_eq!(held["holder"]["token"], 1);
    assert_eq!(held["standby"], "b");
    assert_eq!(held["holder"]["renewal_seen"], true);
    let duration = DaemonTimings::SHORT.lease_duration.as_millis();
    assert_eq!(
        held["holder"]["lease_duration_ms"].as_u64().map(u128::from),
        Some(duration)
    );
    assert_eq!(by_name("free").expect("listed")["state"], "free");
    assert_eq!(by_name("paused").expect("listed")["state"], "paused");
    assert_eq!(
        by_name("newer").expect("listed")["foreign"],
        "its schema 2 is newer than 1"
    );
    assert_eq!(by_name("other").expect("listed")["state"], "foreign");
    assert_eq!(by_name("lock"), None);
    let ended = std::time::SystemTime::now() - std::time::Duration::from_secs(372);
    let ended = mongodb::bson::DateTime::from_system_time(ended);
    let past = doc! { "acquired_at": ended, "ended_at": ended, "reason": "released" };
    let free = doc! { "$set": { "history": [past], "actions": [] } };
    let free = collection.update_one(doc! { "_id": "free" }, free).await;
    assert_eq!(free.expect("written").modified_count, 1);
    let table = leasehold(&stage, &["leases"])
        .await
        .expect(0, &["LEASE", "HOLDER", "STANDBY"])
        .expect(0, &["free for 6m1", "s; no candidate acquires it"])
        .stdout;
    assert!(
        table
            .lines()
            .any(|line| line.starts_with("other") && line.contains("not a lease: it has no schema")),
        "{table}"
    );
    assert!(!table.contains('\u{1b}'), "no color without a terminal");
}

#[tokio::test]
async fn a_holder_that_does_not_renew_is_not_shown_as_renewing() {
    let stage = shared_stage().await;
    let a = stage.candidate("a").leading(LONG).await;
    let lease = name(&stage).await;
    a.kill();
    let at_once = leasehold(&stage, &["leases", "--observe", "0s", "-o", "json"])
        .await
        .json();
    assert_eq!(at_once[0]["holder"]["renewal_seen"], false, "{at_once}");
    // Observes for longer than the lease duration of 3 s.
    let arguments = ["describe", &lease, "--observe", "4s", "-o", "json"];
    let described = leasehold(&stage, &arguments).await.json();
    assert_eq!(described["state"], "expired", "{described}");
    assert_eq!(described["holder"]["renewal_seen"], false, "{described}");
}

#[tokio::test]
async fn a_holder_is_not_shown_as_expired_because_the_stream_is_stale() {
    let stage = shared_stage().await;
    // On a busy machine, a shorter lease may really expire.
    let a = stage.candidate("a").timings(DaemonTimings::DEMO);
    let a = a.leading(LONG).await;
    let lease = name(&stage).await;
    let proxy = stage.set().proxy();
    // The stream opens, but no event arrives.
    proxy.hold_requests_containing("getMore");
    let uri = stage.set().proxied_uri(&proxy);
    // Observes for longer than the lease duration of 6 s.
    let observed = async |arguments: &[&str]| {
        let arguments = [arguments, &["--observe", "7s", "-o", "json"]].concat();
        let shown = run(command_with(&uri, &stage, &arguments)).await.json();
        let shown = shown.get(0).unwrap_or(&shown);
        assert_eq!(shown["state"], "held", "{shown}; {}", a.logs());
        assert_eq!(shown["holder"]["renewal_seen"], true, "{shown}");
    };
    join(observed(&["leases"]), observed(&["describe", &lease])).await;
    assert!(a.leads(), "{}", a.logs());
}

#[tokio::test]
async fn hostile_names_and_identities_do_no_harm_to_a_terminal() {
    let stage = shared_stage().await;
    let identity = format!("a\u{202e}<b>{}", "x".repeat(200));
    let _a = stage.candidate(&identity).leading(LONG).await;
    let lease = name(&stage).await;
    let collection = stage
        .set()
        .client()
        .database(stage.database())
        .collection(stage.collection());
    let hostile = doc! { "_id": "x\u{1b}[2J\n", "kind": "lease" };
    collection.insert_one(hostile).await.expect("inserted");
    for arguments in [vec!["leases"], vec!["describe", &lease]] {
        let shown = leasehold(&stage, &arguments)
            .await
            .expect(0, &["a?<b>x"])
            .stdout;
        assert!(!shown.contains(['\u{202e}', '\u{1b}']), "{shown:?}");
    }
}

#[tokio::test]
async fn an_empty_collection_has_no_leases() {
    let stage = shared_stage().await;
    leasehold(&stage, &["leases"])
        .await
        .expect(0, &["no leases"]);
    assert_eq!(
        leasehold(&stage, &["leases", "-o", "json"]).await.json(),
        serde_json::json!([])
    );
}
