//! Goal: if a server refuses writes or does not answer, each role reports the real cause. A leader
//! and a lock holder stop by their deadlines and report the reason. Once the cause is removed, all
//! processes recover without a restart. Method: produce each cause on a real server, for longer
//! than the deadlines.

use std::sync::Arc;
use std::time::Duration;

use leasehold_testbed::{DaemonTimings, Mount, ReplicaSet, Stage};
use mongodb::Database;
use mongodb::bson::{Document, doc};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::cast::{Cast, FREE, lock, lock_refused, ran, refused, store_error};
use crate::fixture::{LONG, SURVIVING, eventually, set_of_one, stage_on, throughout};

/// Lease duration of locks that the test allows to expire.
const LOCK_LEASE: &str = "6s";
/// Time in which a candidate reads several times.
const SEVERAL_READS: Duration = Duration::from_secs(1);

async fn admin(set: &ReplicaSet, command: Document) {
    let done = set.command(0, command.clone()).await;
    done.unwrap_or_else(|failure| panic!("{command}: {failure}"));
}

fn database(stage: &Stage) -> Database {
    stage.set().client().database(stage.database())
}

async fn run(stage: &Stage, command: Document) {
    let done = database(stage).run_command(command.clone()).await;
    done.unwrap_or_else(|error| panic!("{command}: {error}"));
}

async fn cast_on(set: &Arc<ReplicaSet>) -> Cast {
    let stage = stage_on(set).timings(DaemonTimings::DEMO);
    assert_eq!(ran(lock(&stage, FREE, &["-n"])).await.code, Some(0));
    Cast::start(stage, LOCK_LEASE).await
}

/// Asserts how each role behaves while writes fail with the error `shown` and reads succeed.
async fn suffered(cast: &mut Cast, shown: &str) {
    let parts = [shown];
    let pause = ["pause", "orders", "--timeout=2s"];
    tokio::join!(
        lock_refused(&cast.stage, FREE, &parts),
        refused(&cast.stage, &pause, &parts),
    );
    cast.lose(shown).await;
    // Wait for two failed takeovers, because a successful read clears a single failure but not
    // repeated failures.
    let follower = &cast.follower;
    follower.wait_operations("take_over", "unknown", 2.0).await;
    eventually("the follower names the error", async || {
        store_error(follower).await.contains(shown)
    })
    .await;
    // The follower's reads succeed, but must not clear the repeated failure.
    throughout(SEVERAL_READS, "the status shows an error", async || {
        !store_error(follower).await.is_empty()
    })
    .await;
}

#[tokio::test]
async fn blocked_writes_and_a_locked_server_are_named_and_recovered_from() {
    let set = set_of_one().await;
    let mut cast = cast_on(&set).await;
    let block = |on: bool| doc! { "setUserWriteBlockMode": 1, "global": on };
    admin(&set, block(true)).await;
    let held = ran(lock(&cast.stage, "held", &["-n"])).await;
    assert_eq!(held.code, Some(75), "{}", held.error);
    suffered(&mut cast, "(UserWritesBlocked, code 371): ").await;
    admin(&set, block(false)).await;
    cast.recover().await;

    let mut cast = cast_on(&set).await;
    admin(&set, doc! { "fsync": 1, "lock": true }).await;
    lock_refused(&cast.stage, FREE, &["no answer within", "fsyncLock"]).await;
    cast.lose("operation_timeout").await;
    admin(&set, doc! { "fsyncUnlock": 1 }).await;
    cast.recover().await;
}

#[tokio::test]
async fn a_validator_and_a_view_are_named_and_recovered_from() {
    let set = set_of_one().await;
    let validator = async {
        let mut cast = cast_on(&set).await;
        let change = |validator: Document| {
            doc! { "collMod": cast.stage.collection(), "validator": validator }
        };
        let (on, off) = (
            change(doc! { "owner": { "$exists": true } }),
            change(doc! {}),
        );
        run(&cast.stage, on).await;
        suffered(
            &mut cast,
            "(DocumentValidationFailure, code 121): the collection has a validator",
        )
        .await;
        run(&cast.stage, off).await;
        cast.recover().await;
    };
    let view = async {
        let stage = stage_on(&set).timings(DaemonTimings::DEMO);
        let create = doc! { "create": stage.collection(), "viewOn": "other", "pipeline": [] };
        run(&stage, create).await;
        let shown = ["code 166", "code 28667"];
        let candidate = stage.candidate("a").start();
        eventually("the candidate names the view", async || {
            let error = store_error(&candidate).await;
            error.contains("is a view") && shown.iter().any(|code| error.contains(code))
        })
        .await;
        // The error code is 166 if the server answered the write. Otherwise, it is the code of the
        // subsequent read.
        lock_refused(&stage, FREE, &["code ", "the collection is a view"]).await;
        run(&stage, doc! { "drop": stage.collection() }).await;
        candidate.wait_leads(LONG).await;
        assert_eq!(ran(lock(&stage, FREE, &["--wait=20s"])).await.code, Some(0));
    };
    let series = async {
        let stage = stage_on(&set).timings(DaemonTimings::DEMO);
        let create = doc! { "create": stage.collection(), "timeseries": { "timeField": "ts" } };
        run(&stage, create).await;
        let shown = "a time series";
        let candidate = stage.candidate("a").start();
        eventually("the candidate names the time series", async || {
            store_error(&candidate).await.contains(shown)
        })
        .await;
        lock_refused(&stage, FREE, &[shown]).await;
        run(&stage, doc! { "drop": stage.collection() }).await;
        candidate.wait_leads(LONG).await;
        assert_eq!(ran(lock(&stage, FREE, &["--wait=20s"])).await.code, Some(0));
    };
    let index = async {
        let stage = stage_on(&set).timings(DaemonTimings::DEMO);
        let index = doc! { "key": { "name": 1 }, "name": "name_1", "unique": true };
        run(
            &stage,
            doc! { "createIndexes": stage.collection(), "indexes": [index] },
        )
        .await;
        assert_eq!(ran(lock(&stage, "first", &["-n"])).await.code, Some(0));
        let shown = "(DuplicateKey, code 11000): drop the unique index name_1";
        lock_refused(&stage, FREE, &[shown]).await;
        let candidate = stage.candidate("a").start();
        eventually("the candidate names the index", async || {
            store_error(&candidate).await.contains(shown)
        })
        .await;
        run(
            &stage,
            doc! { "dropIndexes": stage.collection(), "index": "name_1" },
        )
        .await;
        candidate.wait_leads(LONG).await;
        assert_eq!(ran(lock(&stage, FREE, &["-n"])).await.code, Some(0));
    };
    let letters = async {
        let stage = stage_on(&set);
        let other = set.client().database(&stage.database().to_uppercase());
        let made = other.run_command(doc! { "create": "x" }).await;
        made.expect("created");
        lock_refused(
            &stage,
            FREE,
            &["(DatabaseDifferCase, code 13297): a database"],
        )
        .await;
        other.drop().await.expect("dropped");
        assert_eq!(ran(lock(&stage, FREE, &["-n"])).await.code, Some(0));
    };
    tokio::join!(validator, view, series, index, letters);
}

#[tokio::test]
async fn a_primary_without_a_majority_is_named_and_recovered_from() {
    let set = Arc::new(ReplicaSet::builder().election_timeout(LONG).start().await);
    let mut cast = cast_on(&set).await;
    let primary = set.primary().await;
    let others: Vec<_> = (0..3).filter(|other| *other != primary).collect();
    others.iter().for_each(|other| set.stop(*other));
    let majority = "majority";
    let pause = ["pause", "orders", "--timeout=2s"];
    let parts = [majority];
    tokio::join!(
        lock_refused(&cast.stage, FREE, &parts),
        refused(&cast.stage, &pause, &parts),
    );
    cast.lose(majority).await;
    others.iter().for_each(|other| set.cont(*other));
    // The pause may have been applied after all, as the error message warned.
    let resume = ["resume", "orders", "--no-wait", "--timeout=20s"];
    let resumed = ran(cast.stage.command(&set.uri(), &resume)).await;
    assert_eq!(resumed.code, Some(0), "{}", resumed.error);
    cast.recover().await;
}

#[tokio::test]
async fn a_set_whose_members_may_not_become_primary_is_named_and_costs_nothing() {
    let set = Arc::new(ReplicaSet::start().await);
    // The outage lasts until all commands have run.
    let stage = stage_on(&set).timings(DaemonTimings {
        lease_duration: Duration::from_secs(60),
        renew_deadline: Duration::from_secs(45),
        ..SURVIVING
    });
    let mut cast = Cast::start(stage.clone(), "60s").await;
    let primary = set.primary().await;
    let freeze = async |seconds: i32| {
        for member in 0..3 {
            // The primary refuses this command, but need not be frozen.
            let _ = set.command(member, doc! { "replSetFreeze": seconds }).await;
        }
    };
    freeze(600).await;
    let down = doc! { "replSetStepDown": 600, "secondaryCatchUpPeriodSecs": 0, "force": true };
    set.command(primary, down)
        .await
        .expect("step down the primary");
    let commands: [&[&str]; 4] = [
        &["lock", FREE, "--wait=4s", "--", "true"],
        &["locks", "--timeout=2s"],
        &["leases", "--timeout=2s"],
        &["pause", "orders", "--timeout=2s"],
    ];
    for command in commands {
        refused(&stage, command, &["no primary", "is a secondary"]).await;
    }
    lock_refused(&stage, FREE, &[]).await;
    eventually("the leader reports why it does not renew", async || {
        !store_error(&cast.leader).await.is_empty()
    })
    .await;
    cast.cannot_renew().await;
    freeze(0).await;
    cast.unharmed(1).await;
    cast.end().await;
}

#[tokio::test]
async fn a_collection_that_only_check_rejects_works_for_each_role() {
    let set = set_of_one().await;
    let serves = async |options: Document| {
        let stage = stage_on(&set).timings(SURVIVING);
        let mut create = doc! { "create": stage.collection() };
        create.extend(options);
        run(&stage, create).await;
        let mut cast = Cast::start(stage.clone(), "24s").await;
        cast.unharmed(0).await;
        assert_eq!(ran(lock(&stage, FREE, &["-n"])).await.code, Some(0));
        cast.end().await;
    };
    tokio::join!(
        serves(doc! { "capped": true, "size": 1 << 20 }),
        serves(doc! { "collation": { "locale": "en", "strength": 2 } }),
    );
}

#[tokio::test]
async fn a_document_without_room_is_named_and_recovered_from() {
    let set = set_of_one().await;
    let stage = stage_on(&set).timings(SURVIVING);
    assert_eq!(ran(lock(&stage, FREE, &["-n"])).await.code, Some(0));
    let locks = database(&stage).collection::<Document>(stage.collection());
    let stored = locks.find_one_and_delete(doc! {}).await.expect("deleted");
    let mut stored = stored.expect("the lock");
    let used = mongodb::bson::serialize_to_vec(&stored).expect("a document");
    // With the field's name, type and length, the document's size is slightly below the maximum.
    let rest = "x".repeat(16 * 1024 * 1024 - used.len() - 32);
    stored.insert("notes", rest);
    locks.insert_one(stored).await.expect("inserted");
    let command = ["lock", FREE, "-n", "--", "true"];
    let named = "(Location17419, code 17419): the document of this name is too large";
    refused(&stage, &command, &[named]).await;
    let emptied = doc! { "$unset": { "notes": 1 } };
    locks.update_one(doc! {}, emptied).await.expect("updated");
    assert_eq!(ran(lock(&stage, FREE, &["-n"])).await.code, Some(0));
}

#[tokio::test]
async fn a_full_disk_is_named_and_recovered_from() {
    let Some(disk) = Mount::disk("700m") else {
        return;
    };
    let set = ReplicaSet::builder().members(1).data(disk.path());
    let set = Arc::new(set.start().await);
    let mut cast = cast_on(&set).await;
    let rows = database(&cast.stage).collection::<Document>("rows");
    rows.insert_one(doc! {}).await.expect("inserted");
    disk.fill();
    // mongod cannot create the file of a new collection.
    let shown = "(UnknownError, code 8): free disk space on the primary";
    lock_refused(&stage_on(&set), FREE, &[shown]).await;
    // mongod exits when its journal is full.
    let row = "x".repeat(1 << 20);
    eventually("the server ends", async || {
        let inserted = rows.insert_one(doc! { "row": &row });
        let _ = tokio::time::timeout(SEVERAL_READS, inserted).await;
        set.node(0).pid().is_none()
    })
    .await;
    lock_refused(&cast.stage, FREE, &["connection refused"]).await;
    cast.lose("connection").await;
    disk.empty();
    set.restart(0).await;
    cast.recover().await;
}

#[tokio::test]
async fn a_server_without_free_connections_affects_no_connected_client() {
    let set = ReplicaSet::builder().members(1).flags(["--maxConns", "60"]);
    let set = Arc::new(set.start().await);
    let mut cast = Cast::start(stage_on(&set).timings(SURVIVING), "24s").await;
    let mut idle = Vec::new();
    let address = set.node(0).address();
    eventually("the server refuses a connection", async || {
        let mut connection = TcpStream::connect(&address)
            .await
            .expect("accepted by the kernel");
        // mongod immediately closes connections above the limit, without a message.
        let mut byte = [0];
        let read = connection.read(&mut byte);
        let closed = tokio::time::timeout(Duration::from_millis(200), read).await;
        let refused = closed.is_ok();
        idle.extend((!refused).then_some(connection));
        refused
    })
    .await;
    lock_refused(&cast.stage, FREE, &["connection"]).await;
    cast.leader.wait_renewal(LONG).await;
    assert!(cast.holder.runs() && cast.waiter.runs());
    drop(idle);
    let free = ran(lock(&cast.stage, FREE, &["--wait=20s"])).await;
    assert_eq!(free.code, Some(0), "{}", free.error);
    assert_eq!(cast.leader.token(), Some(1), "{}", cast.leader.logs());
    cast.end().await;
}

#[tokio::test]
async fn a_wrong_name_of_the_set_is_named_until_it_is_corrected() {
    let set = set_of_one().await;
    let stage = stage_on(&set);
    let wrong = set
        .uri()
        .replace("replicaSet=testbed", "replicaSet=renamed");
    let candidate = stage.candidate("a").uri(&wrong).start();
    let shown = r#"is in replica set "testbed", not "renamed""#;
    eventually("the candidate names the set", async || {
        store_error(&candidate).await.contains(shown)
    })
    .await;
    let locks = ran(stage.command(&wrong, &["locks", "--timeout=3s"])).await;
    assert_eq!(locks.code, Some(69), "{}", locks.error);
    assert!(locks.last().contains(shown), "{}", locks.error);
    candidate.replace_uri(&set.uri());
    candidate.wait_leads(LONG).await;
}
