//! Goal: for an unknown name, a document that is not a lease, a missing privilege or an unreachable
//! MongoDB, the command writes nothing and prints a specific error with a remedy.

use std::time::{Duration, Instant};

use leasehold_testbed::{ReplicaSet, Stage};
use mongodb::bson::doc;

use crate::command::{LONG, command_with, leasehold, name, run, shared_stage};

#[tokio::test]
async fn an_unknown_name_is_reported_with_similar_names_and_the_command_that_lists_them() {
    let stage = shared_stage().await;
    for lease in ["orders-scheduler", "stock-1", "stock-2"] {
        let create = ["repair", lease, "--token-at-least", "1", "--create"];
        leasehold(&stage, &create).await.expect(0, &[]);
    }
    let lock = ["lock", "reports-nightly", "--", "true"];
    leasehold(&stage, &lock).await.expect(0, &[]);
    let database = stage.database();
    let flag = format!("--mongodb-database={database}");
    // The commands in the message name the database of the call.
    let list = |names: &str| format!("leasehold {names} --mongodb-database {database}");
    let (leases, locks) = (list("leases"), list("locks"));
    let missing = |kind: &str, name: &str| {
        let at = format!("{database}.{}", stage.collection());
        format!("no {kind} is named {name} in {at}, replica set ")
    };
    let of_a_lease: [&[&str]; 7] = [
        &["step-down"],
        &["transfer", "--to=b"],
        &["pause"],
        &["resume"],
        &["cancel"],
        &["repair", "--token-at-least=1"],
        &["leases", "retire"],
    ];
    for verb in of_a_lease {
        for (name, near) in [
            ("orders-sheduler", "orders-scheduler"),
            ("orders-shceduler", "orders-scheduler"),
            ("orders", "orders-scheduler"),
            ("stock-3", "stock-1 or stock-2"),
        ] {
            let near = format!("; did you mean {near}? To list the leases: {leases}");
            let answer = leasehold(&stage, &[verb, &["--lease", name, &flag]].concat()).await;
            answer.expect(78, &[&missing("lease", name), &near]);
        }
    }
    // A name of the other kind is not suggested.
    let list = format!("; to list the leases: {leases}");
    let answer = leasehold(&stage, &["pause", "reports-nihtly", &flag]).await;
    answer.expect(78, &[&missing("lease", "reports-nihtly"), &list]);
    let near = format!("; did you mean reports-nightly? To list the locks: {locks}");
    for verb in [&["locks", "break"][..], &["describe", "--lock"]] {
        let answer = leasehold(&stage, &[verb, &["reports-nihtly", &flag]].concat()).await;
        answer.expect(78, &[&missing("lock", "reports-nihtly"), &near]);
    }
    for (name, near) in [
        ("orders-sheduler", "did you mean orders-scheduler? To"),
        ("reports", "did you mean reports-nightly? To"),
        ("zzz", "to"),
    ] {
        let list = format!("; {near} list the names: {leases}, {locks}");
        let answer = leasehold(&stage, &["describe", name, &flag]).await;
        answer.expect(78, &[&missing("lease or lock", name), &list]);
    }
    let elsewhere = ["describe", "zzz", "--mongodb-database", "other"];
    leasehold(&stage, &elsewhere).await.expect(
        78,
        &["leasehold leases --mongodb-database other, leasehold locks --mongodb-database other"],
    );
    // The hint without the flag could name another deployment, and must not print the secret.
    let uri = stage.set().uri();
    let deployment = ["describe", "zzz", "--mongodb-uri", &uri];
    let answer = leasehold(&stage, &deployment).await;
    answer.expect(
        78,
        &["to list the names: leasehold leases --mongodb-uri …, "],
    );
    let repaired = leasehold(&stage, &["repair", "zzz", "--token-at-least", "1"]).await;
    repaired.expect(78, &["to create it with token 1: pass --create"]);
}

#[tokio::test]
async fn locks_and_foreign_documents_are_not_taken_for_leases() {
    let stage = shared_stage().await;
    let collection = stage
        .set()
        .client()
        .database(stage.database())
        .collection(stage.collection());
    for document in [
        doc! { "_id": "backup", "schema": 1, "kind": "lock", "token": 1_i64 },
        doc! { "_id": "theirs", "hello": "world" },
        doc! { "_id": "free", "schema": 1, "kind": "lease" },
    ] {
        collection.insert_one(document).await.expect("inserted");
    }
    for verb in ["step-down", "pause"] {
        leasehold(&stage, &[verb, "backup"]).await.expect(
            78,
            &["backup is a lock, not a lease: leasehold describe backup shows it"],
        );
        leasehold(&stage, &[verb, "theirs"]).await.expect(
            78,
            &["lease theirs: the document of this name is not a lease: it has no schema"],
        );
    }
    for lock in [&["locks", "break"][..], &["describe"]] {
        leasehold(&stage, &[lock, &["--lock", "free"]].concat())
            .await
            .expect(
                78,
                &["free is a lease, not a lock: leasehold describe free"],
            );
    }
    let not_a_lease = leasehold(&stage, &["describe", "--lease", "backup"]).await;
    not_a_lease.expect(78, &["backup is a lock, not a lease"]);
}

#[tokio::test]
async fn invalid_values_are_usage_errors() {
    let stage = shared_stage().await;
    for (arguments, part) in [
        (vec!["step-down"], "<NAME>"),
        (vec!["step-down", "a/b"], "invalid value 'a/b' for '[NAME]'"),
        (
            vec!["step-down", "a", "--lease", "a"],
            "cannot be used with",
        ),
        (
            vec!["web", "--listen", ":9403"],
            "give --token-file FILE with a token for visitors, or --listen 127.0.0.1:9403",
        ),
        (
            vec!["web", "--listen", "9500"],
            "such as \"127.0.0.1:9500\", \"localhost:9500\", \":9500\" (all IPv4",
        ),
        (
            vec!["web", "--listen", "localhost"],
            "such as \"127.0.0.1:9403\", \"localhost:9403\"",
        ),
        (vec!["transfer", "orders"], "--to"),
        (
            vec!["transfer", "orders", "--to", ""],
            "for '--to <IDENTITY>': expected 1 to 253",
        ),
        (
            vec!["transfer", "orders", "--to", "b", "--reserve", "2m"],
            "invalid value '2m' for '--reserve <DURATION>': expected a duration between",
        ),
        (
            vec!["pause", "orders", "--timeout", "5"],
            "invalid value '5' for '--timeout <DURATION>': expected a duration with its unit",
        ),
        (
            vec!["cancel", "orders", "--timeout", "0s"],
            "invalid value '0s' for '--timeout <DURATION>': expected a duration between 100ms and 1d",
        ),
        (
            vec!["pause", "orders", "--reason", "a\nb"],
            "for '--reason <TEXT>': expected 1 to 500 bytes",
        ),
        (
            vec!["repair", "orders", "--token-at-least", "-1"],
            "invalid value '-1' for '--token-at-least <N>': expected a whole number",
        ),
        (
            vec![
                "repair",
                "orders",
                "--token-at-least",
                "9223372036854775807",
            ],
            "expected a whole number from 0 to 9223372036854775806",
        ),
        (vec!["leases", "orders"], "orders"),
        (vec!["cancel", "orders", "--no-wait"], "--no-wait"),
        (vec!["leases", "--lease-duration", "5s"], "--lease-duration"),
    ] {
        leasehold(&stage, &arguments).await.expect(64, &[part]);
    }
}

#[tokio::test]
async fn a_missing_right_is_named() {
    let set = std::sync::Arc::new(ReplicaSet::builder().members(1).auth().start().await);
    let stage = Stage::new(env!("CARGO_BIN_EXE_leasehold"), std::sync::Arc::clone(&set));
    let a = stage.candidate("a").leading(LONG).await;
    let lease = name(&stage).await;
    let reader = set
        .add_user_with_actions(
            "reader",
            stage.database(),
            stage.collection(),
            &["find", "changeStream"],
        )
        .await;
    let uri = set.uri_for(&reader);
    let as_reader = |arguments: &[&str]| run(command_with(&uri, &stage, arguments));
    as_reader(&["describe", &lease])
        .await
        .expect(0, &["a, token 1"]);
    as_reader(&["step-down", &lease])
        .await
        .expect(69, &["user reader lacks the right update"]);
    assert!(a.leads());
}

#[tokio::test]
async fn commands_wait_for_an_unreachable_mongodb() {
    let stage = shared_stage().await;
    // No server listens on port 9.
    let uri = "mongodb://127.0.0.1:9/?replicaSet=none";
    for (arguments, part) in [
        (&["leases"][..], "cannot list the leases: "),
        (&["describe", "orders"], "cannot read the document: "),
        (&["step-down", "orders"], "cannot read the lease: "),
        (&["locks"], "cannot list the locks: "),
    ] {
        let began = Instant::now();
        let arguments = [arguments, &["--timeout", "1500ms"]].concat();
        let away = run(command_with(uri, &stage, &arguments)).await;
        let connecting = "connecting to 127.0.0.1:9 (1s of 1.5s); no primary: ";
        away.expect(69, &[connecting, part, "connection refused"]);
        assert!(
            began.elapsed() >= Duration::from_millis(1_400),
            "{arguments:?}"
        );
    }
}
