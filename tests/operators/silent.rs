//! Goal: no command shows an expired leader as alive. Without waiting, each command shows when the
//! leader last wrote and when other candidates may take over. If the role permits, each command
//! also shows whether any candidate answers.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use leasehold_testbed::{DaemonTimings, ReplicaSet, Stage};
use mongodb::bson::{Bson, DateTime, Document, doc};

use crate::command::{Answer, LONG, command_with, leasehold, name, run, shared_stage};

/// Kills the only candidate, and backdates its last renewal by six minutes.
async fn dead_leader(stage: &Stage) -> String {
    let a = stage.candidate("a").leading(LONG).await;
    let lease = name(stage).await;
    a.kill();
    let then = SystemTime::now() - Duration::from_secs(372);
    let then = DateTime::from_system_time(then);
    stage.stored().set(doc! { "holder.renewed_at": then }).await;
    lease
}

/// A late holder may still renew, so each command waits for the renewal.
#[tokio::test]
async fn a_command_says_that_it_waits_for_renewals() {
    let stage = shared_stage().await.timings(DaemonTimings::DEFAULT);
    let lease = dead_leader(&stage).await;
    let waiting = "waiting for renewals (1s of 4s)\n";
    for command in [&["leases"][..], &["describe", &lease]] {
        // The holder's clock is ahead, so the last write does not seem old.
        let then = DateTime::from_system_time(SystemTime::now() + Duration::from_secs(600));
        stage.stored().set(doc! { "holder.renewed_at": then }).await;
        let shown = leasehold(&stage, command).await.expect(0, &[]);
        // A busy machine may first show that it connects.
        assert!(shown.stderr.ends_with(waiting), "{command:?}: {shown:?}");
        let [command, at_once] = [command, &["--observe", "0s"]].map(<[_]>::to_vec);
        let shown = leasehold(&stage, &[command, at_once].concat()).await;
        let stderr = shown.expect(0, &[]).stderr;
        assert!(!stderr.contains("waiting"), "{stderr}");
    }
}

#[tokio::test]
async fn a_list_says_how_many_leases_were_asked() {
    let stage = shared_stage().await;
    let create = ["repair", "lease-0", "--token-at-least", "1", "--create"];
    leasehold(&stage, &create).await.expect(0, &[]);
    let database = stage.set().client().database(stage.database());
    let collection = database.collection::<Document>(stage.collection());
    let lease = collection.find_one(doc! {}).await.expect("read");
    let lease = lease.expect("the created lease");
    let leases = (1..20).map(|number| {
        let mut lease = lease.clone();
        lease.insert("_id", format!("lease-{number}"));
        lease
    });
    collection.insert_many(leases).await.expect("inserted");
    let listed = leasehold(&stage, &["leases"]).await.expect(0, &[]);
    let limited = "asked the candidates of 16 of 20 leases without a leader; to ask for another: \
                   leasehold describe NAME\n";
    assert!(listed.stderr.ends_with(limited), "{listed:?}");
}

const LAST_WRITE: &str = "silent; last renewal 6m";
const EXPIRES: &str = "s ago by the holder's clock; others take over after watching for 24s";

#[tokio::test]
async fn no_candidate_takes_over_from_a_killed_leader_while_the_lease_is_paused() {
    let stage = shared_stage().await.timings(DaemonTimings::DEFAULT);
    let lease = dead_leader(&stage).await;
    stage.stored().set(doc! { "paused": true }).await;
    for command in [&["leases"][..], &["describe", &lease]] {
        let part = "no candidate takes over while the lease is paused; no candidate answers";
        let shown = leasehold(&stage, command).await.expect(0, &[part]).stdout;
        assert!(!shown.contains("others take over"), "{shown}");
    }
}

#[tokio::test]
async fn each_command_shows_a_killed_leader_immediately() {
    let stage = shared_stage().await.timings(DaemonTimings::DEFAULT);
    let lease = dead_leader(&stage).await;

    let began = Instant::now();
    let listed = leasehold(&stage, &["leases"]).await.expect(0, &[]).stdout;
    // Neither the holder nor a candidate answers, so the command does not wait for a renewal.
    assert!(began.elapsed() < Duration::from_secs(4), "{listed}");
    let row = listed.lines().nth(1).expect("a row");
    for part in [
        "silent",
        "~6m",
        "others take over after watching for 24s",
        "no candidate answers",
    ] {
        assert!(row.contains(part), "{part}: {listed}");
    }
    let json = leasehold(&stage, &["leases", "-o", "json"]).await.json();
    let (object, holder) = (&json[0], &json[0]["holder"]);
    assert_eq!(object["state"], "silent", "{json}");
    assert!(
        holder["last_write_ago_ms"].as_i64() >= Some(372_000),
        "{json}"
    );
    assert!(holder["silent_ms"].as_i64() >= Some(372_000), "{json}");
    let expires = holder["expires_for_others_in_ms"].as_i64();
    assert!(Some(0) < expires && expires < Some(24_000), "{json}");
    assert_eq!(object["candidates"], serde_json::json!([]), "{json}");
    let not_waiting = leasehold(&stage, &["leases", "--observe", "0s", "-o", "json"]).await;
    let not_waiting = not_waiting.json();
    assert_eq!(not_waiting[0]["state"], "silent");
    assert_eq!(not_waiting[0]["candidates_not_asked"], "--observe 0s");

    leasehold(&stage, &["describe", &lease]).await.expect(
        0,
        &[
            "State:     ",
            LAST_WRITE,
            EXPIRES,
            "; no candidate answers\n",
        ],
    );

    let parts = [
        "a is silent; last renewal 6m",
        EXPIRES,
        "no candidate answers",
    ];
    let step_down = ["step-down", &lease, "--timeout", "1s"];
    let answer = leasehold(&stage, &step_down).await;
    let answer = answer.expect(3, &parts);
    let at_once = "the request is recorded nevertheless, and takes effect only if a recovers";
    assert!(answer.stderr.contains(at_once), "{answer:?}");
    assert!(
        answer
            .stdout
            .contains("no step-down within 1s: a is silent"),
        "{answer:?}"
    );
    assert!(!answer.stdout.contains("under way"), "{answer:?}");
    let recorded = stage.stored().get().await;
    assert_ne!(recorded.get("request"), Some(&Bson::Null));
    let json = leasehold(&stage, &[&step_down[..], &["-o", "json"]].concat()).await;
    let json = json
        .expect(
            3,
            &["the request is already pending, and takes effect only if a recovers"],
        )
        .json();
    assert_eq!(json["evidence"]["state"], "silent", "{json}");
    assert_eq!(
        json["evidence"]["candidates"],
        serde_json::json!([]),
        "{json}"
    );

    leasehold(&stage, &["step-down", &lease, "--no-wait"])
        .await
        .expect(
            0,
            &["step-down requested already; a is silent; last renewal 6m"],
        );
    let transfer = [
        "transfer",
        &lease,
        "--to",
        "b",
        "--force",
        "--timeout",
        "1s",
    ];
    leasehold(&stage, &transfer).await.expect(
        3,
        &["no transfer to b within 1s: a is silent; last renewal 6m"],
    );
    leasehold(
        &stage,
        &["transfer", &lease, "--to", "a", "--timeout", "1s"],
    )
    .await
    .expect(1, &["did not renew within ", "silent; last renewal 6m"]);
    let described = leasehold(&stage, &["describe", &lease, "--observe", "0s"]).await;
    described.expect(
        0,
        &["; no effect unless a recovers; the next leader removes the request\n"],
    );
    let cancel = leasehold(&stage, &["cancel", &lease, "-o", "json"]).await;
    let canceled = cancel.json();
    let message = canceled["message"].as_str().expect("a message");
    let withdrawn = "request withdrawn; a has not applied it; a is silent; last renewal 6m";
    assert!(message.starts_with(withdrawn), "{canceled}");
    assert!(message.contains(EXPIRES), "{canceled}");
    assert_eq!(canceled["evidence"]["state"], "silent", "{canceled}");
    let pause = ["pause", &lease, "--timeout", "1s"];
    let answer = leasehold(&stage, &pause).await.expect(
        3,
        &[
            "paused; a is silent; last renewal 6m",
            "; no candidate takes over, and a steps down if it recovers",
        ],
    );
    let at_once = "the request is recorded nevertheless, and prevents a takeover";
    assert!(answer.stderr.contains(at_once), "{answer:?}");
    leasehold(&stage, &["resume", &lease, "--timeout", "1s"])
        .await
        .expect(3, &["resumed; a is silent; last renewal 6m"]);
}

#[tokio::test]
async fn the_candidates_of_a_holder_that_dies_during_the_observation_are_asked() {
    let stage = shared_stage().await.timings(DaemonTimings::DEMO);
    let a = stage.candidate("a").leading(LONG).await;
    let lease = name(&stage).await;
    a.kill();
    // At the first read, the last renewal is recent.
    let now = DateTime::now();
    stage.stored().set(doc! { "holder.renewed_at": now }).await;
    let answer = leasehold(&stage, &["describe", &lease, "--observe", "8s"]).await;
    let expired = "expired; last renewal ";
    let parts = [
        expired,
        "others take over after watching for 6s; no candidate answers\n",
    ];
    answer.expect(0, &parts);
}

#[tokio::test]
async fn a_read_only_role_sees_the_evidence() {
    let set = Arc::new(ReplicaSet::builder().members(1).auth().start().await);
    let stage = Stage::new(env!("CARGO_BIN_EXE_leasehold"), Arc::clone(&set));
    let stage = stage.timings(DaemonTimings::DEFAULT);
    let lease = dead_leader(&stage).await;
    let rights = ["find", "changeStream"];
    let (database, collection) = (stage.database(), stage.collection());
    let reader = set
        .add_user_with_actions("reader", database, collection, &rights)
        .await;
    let uri = set.uri_for(&reader);
    let as_reader =
        async |arguments: &[&str]| -> Answer { run(command_with(&uri, &stage, arguments)).await };
    let not_asked = "candidates not asked: ";
    let lacks = "user reader lacks the right update;";
    as_reader(&["leases"])
        .await
        .expect(0, &["silent", "~6m", not_asked, lacks]);
    as_reader(&["describe", &lease])
        .await
        .expect(0, &[LAST_WRITE, EXPIRES, not_asked, lacks]);
    as_reader(&["describe", &lease, "--candidates"])
        .await
        .expect(
            69,
            &[
                "Present:   not asked: ",
                "cannot ask the candidates to report: ",
                lacks,
            ],
        );
    let json = as_reader(&["describe", &lease, "-o", "json"]).await.json();
    assert_eq!(json["state"], "silent", "{json}");
    let why = json["candidates_not_asked"].as_str().expect("a reason");
    assert!(why.contains(lacks), "{json}");
    as_reader(&["step-down", &lease])
        .await
        .expect(69, &["a is silent; last renewal 6m", lacks]);
}

#[tokio::test]
async fn a_renewing_leader_holds_the_lease_whatever_its_clock_says() {
    let stage = shared_stage().await.timings(DaemonTimings::DEFAULT);
    let a = stage.candidate("a").leading(LONG).await;
    let lease = name(&stage).await;
    // The next renewal is up to 3 s away.
    let then = DateTime::from_millis(1_000);
    stage.stored().set(doc! { "holder.renewed_at": then }).await;
    let described = leasehold(&stage, &["describe", &lease, "-o", "json"])
        .await
        .json();
    assert_eq!(described["state"], "held", "{described}");
    assert_eq!(described["holder"]["renewal_seen"], true, "{described}");
    a.stop();
    let ahead = SystemTime::now() + Duration::from_secs(600);
    let ahead = DateTime::from_system_time(ahead);
    stage
        .stored()
        .set(doc! { "holder.renewed_at": ahead })
        .await;
    // The stopped leader answers no roll call. After a quarter of the lease duration, it is late.
    let dated = ["no candidate answers", " in the future"];
    let listed = leasehold(&stage, &["leases"]).await.expect(0, &dated);
    assert!(!listed.stdout.contains("held"), "{listed:?}");
    let described = leasehold(&stage, &["describe", &lease]).await;
    let parts = [&dated[..], &["; no renewal in ", "Present:   none\n"]].concat();
    let described = described.expect(0, &parts);
    assert!(!described.stdout.contains("held"), "{described:?}");
    a.cont();
}
