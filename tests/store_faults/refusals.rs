//! Goal: a server that answers and refuses writes, or does not acknowledge them, is reported by the
//! name of its error, the code and a remedy. A lock command then exits with 69, never with 75, which
//! means that another process holds the lock. Everything recovers without a restart.
//! Method: each error by a fail point, and some by their real causes. The tables are printed.

#![allow(clippy::print_stdout, reason = "the tables are for a reader")]

use std::process::Stdio;
use std::sync::Arc;

use leasehold_testbed::{DaemonTimings, ReplicaSet, Scratch, Stage};
use mongodb::bson::{Document, doc};
use tokio::process::Command;

use crate::fixture::{LONG, eventually, set_of_one, stage_on};

/// Codes of a server's errors, and the names by which they are reported.
const ERRORS: [(i32, &str); 40] = [
    (6, "HostUnreachable"),
    (7, "HostNotFound"),
    (11, "UserNotFound"),
    (20, "IllegalOperation"),
    (24, "LockTimeout"),
    (46, "LockBusy"),
    (59, "CommandNotFound"),
    (72, "InvalidOptions"),
    (73, "InvalidNamespace"),
    (79, "UnknownReplWriteConcern"),
    (96, "OperationFailed"),
    (100, "UnsatisfiableWriteConcern"),
    (112, "WriteConflict"),
    (115, "CommandNotSupported"),
    (4, "NoSuchKey"),
    (133, "FailedToSatisfyReadPreference"),
    (146, "ExceededMemoryLimit"),
    (166, "CommandNotSupportedOnView"),
    (202, "NetworkInterfaceExceededTimeLimit"),
    (238, "NotImplemented"),
    (262, "ExceededTimeLimit"),
    (5, "GraphContainsCycle"),
    (317, "ConnectionPoolExpired"),
    (10, "CannotMutateObject"),
    (365, "TemporarilyUnavailable"),
    (371, "UserWritesBlocked"),
    (8000, "AtlasError"),
    (10003, "CannotGrowDocumentInCappedNamespace"),
    (10334, "BSONObjectTooLarge"),
    (11601, "Interrupted"),
    (13297, "DatabaseDifferCase"),
    (14031, "OutOfDiskSpace"),
    (1, "InternalError"),
    (2, "BadValue"),
    (8, "UnknownError"),
    (9, "FailedToParse"),
    (14, "TypeMismatch"),
    (50, "MaxTimeMSExpired"),
    (211, "KeyNotFound"),
    (13, "Unauthorized"),
];

struct Ran {
    code: Option<i32>,
    error: String,
}

async fn ran(mut command: Command) -> Ran {
    let output = command.stdout(Stdio::null()).stderr(Stdio::piped());
    let output = output.spawn().expect("it starts").wait_with_output();
    let output = tokio::time::timeout(LONG, output).await;
    let output = output.expect("it ends").expect("its output");
    Ran {
        code: output.status.code(),
        error: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

fn lock(stage: &Stage, name: &str, flags: &[&str]) -> Command {
    let short = ["lock", name, "--lease-duration=3s"];
    let arguments = [&short[..], flags, &["--", "true"]].concat();
    stage.command(&stage.set().uri(), &arguments)
}

/// Asserts the exit code, and that the last line names the error, its code and a remedy.
fn refused(what: &str, ran: &Ran, (code, name): (i32, &str)) {
    let last = ran.error.lines().last().unwrap_or_default();
    assert_eq!(ran.code, Some(69), "{what}, {name}: {}", ran.error);
    // Two errors have messages of their own.
    let says = |text: &str| last.contains(text) || [13, 50].contains(&code);
    assert!(says(name), "{what}, {name}: {last}");
    assert!(last.contains(&format!("(code {code}): ")), "{what}: {last}");
}

/// Makes all writes of clients fail, or returns them to normal.
async fn fail_writes(set: &ReplicaSet, mode: &str, how: Document) {
    let mut data = doc! { "failCommands": ["findAndModify", "insert"] };
    data.extend(how);
    set.fail_command(0, doc! { "mode": mode, "data": data })
        .await;
}

#[tokio::test]
async fn each_error_of_a_server_is_named_and_no_lock_command_calls_it_a_conflict() {
    let set = set_of_one().await;
    let stage = stage_on(&set).timings(DaemonTimings::DEFAULT);
    let leader = stage.candidate("a").leading(LONG).await;
    let _follower = stage.candidate("b").following("a", LONG).await;
    let scratch = Scratch::new();
    let (held, end) = (scratch.path().join("held"), scratch.path().join("end"));
    let script = format!(
        ": > {}; while [ ! -e {} ]; do sleep 0.1; done",
        held.display(),
        end.display()
    );
    let holds = ["lock", "held", "--", "sh", "-c", &script];
    let mut holder = stage
        .command(&set.uri(), &holds)
        .spawn()
        .expect("it starts");
    eventually("the lock is held", async || held.exists()).await;

    println!(
        "{:>6} {:36} lock -n  lock -w 2  pause  leader, holder afterwards",
        "code", "error"
    );
    for (code, name) in ERRORS {
        fail_writes(&set, "alwaysOn", doc! { "errorCode": code }).await;
        let pause = ["pause", stage.lease(), "--no-wait", "--timeout=2s"];
        let (at_once, waiting, operator) = tokio::join!(
            ran(lock(&stage, "free", &["-n"])),
            ran(lock(&stage, "free", &["--wait=2s"])),
            ran(stage.command(&set.uri(), &pause)),
        );
        refused("lock -n", &at_once, (code, name));
        refused("lock --wait=2s", &waiting, (code, name));
        assert_eq!(operator.code, Some(69), "{name}: {}", operator.error);
        let shown = format!("code {code}");
        assert!(operator.error.contains(&shown), "{}", operator.error);
        fail_writes(&set, "off", doc! {}).await;
        leader.wait_renewal(LONG).await;
        assert_eq!(leader.token(), Some(1), "{name}: {}", leader.logs());
        assert!(holder.try_wait().expect("its status").is_none(), "{name}");
        println!("{code:>6} {name:36} 69       69         69     same token, still held");
    }
    std::fs::write(&end, "").expect("written");
    assert!(holder.wait().await.expect("its status").success());
    assert_eq!(ran(lock(&stage, "free", &["-n"])).await.code, Some(0));
}

async fn admin(set: &Arc<ReplicaSet>, command: Document) {
    let done = set.command(0, command.clone()).await;
    done.unwrap_or_else(|failure| panic!("{command}: {failure}"));
}

#[tokio::test]
async fn the_real_causes_of_refused_writes_are_named_and_recovered_from() {
    let set = set_of_one().await;
    let database = |stage: &Stage| set.client().database(stage.database());
    println!("{:28} exit  error", "cause");
    let row = |cause: &str, ran: &Ran, name: &str| {
        let last = ran.error.lines().last().unwrap_or_default();
        assert_eq!(ran.code, Some(69), "{cause}: {}", ran.error);
        assert!(last.contains(name), "{cause}: {last}");
        println!("{cause:28} 69    {last}");
    };

    let stage = stage_on(&set);
    admin(&set, doc! { "setUserWriteBlockMode": 1, "global": true }).await;
    row(
        "write block",
        &ran(lock(&stage, "x", &["-n"])).await,
        "UserWritesBlocked",
    );
    admin(&set, doc! { "setUserWriteBlockMode": 1, "global": false }).await;
    assert_eq!(ran(lock(&stage, "x", &["-n"])).await.code, Some(0));

    let validator = doc! { "validator": { "owner": { "$exists": true } } };
    let mut change = doc! { "collMod": stage.collection() };
    change.extend(validator);
    database(&stage).run_command(change).await.expect("changed");
    row(
        "validator",
        &ran(lock(&stage, "y", &["-n"])).await,
        "DocumentValidationFailure",
    );
    let change = doc! { "collMod": stage.collection(), "validator": {} };
    database(&stage).run_command(change).await.expect("changed");
    assert_eq!(ran(lock(&stage, "y", &["-n"])).await.code, Some(0));

    let index = doc! { "key": { "name": 1 }, "name": "name_1", "unique": true };
    let stage = stage_on(&set);
    let create = doc! { "createIndexes": stage.collection(), "indexes": [index] };
    database(&stage).run_command(create).await.expect("created");
    assert_eq!(ran(lock(&stage, "first", &["-n"])).await.code, Some(0));
    row(
        "foreign unique index",
        &ran(lock(&stage, "second", &["-n"])).await,
        "name_1",
    );
    let drop = doc! { "dropIndexes": stage.collection(), "index": "name_1" };
    database(&stage).run_command(drop).await.expect("dropped");
    assert_eq!(ran(lock(&stage, "second", &["-n"])).await.code, Some(0));

    let stage = stage_on(&set);
    let view = doc! { "create": stage.collection(), "viewOn": "other", "pipeline": [] };
    database(&stage).run_command(view).await.expect("created");
    row(
        "view",
        &ran(lock(&stage, "x", &["-n"])).await,
        "CommandNotSupportedOnView",
    );

    let stage = stage_on(&set);
    let other_case = set.client().database(&stage.database().to_uppercase());
    let made = other_case.run_command(doc! { "create": "x" }).await;
    made.expect("created");
    row(
        "database of another case",
        &ran(lock(&stage, "x", &["-n"])).await,
        "DatabaseDifferCase",
    );

    let stage = stage_on(&set);
    admin(&set, doc! { "fsync": 1, "lock": true }).await;
    row(
        "fsyncLock",
        &ran(lock(&stage, "x", &["-n"])).await,
        "operation_timeout",
    );
    admin(&set, doc! { "fsyncUnlock": 1 }).await;
    assert_eq!(ran(lock(&stage, "x", &["-n"])).await.code, Some(0));
}

#[tokio::test]
async fn a_primary_without_a_majority_is_not_a_conflict() {
    let set = Arc::new(ReplicaSet::builder().election_timeout(LONG).start().await);
    let stage = stage_on(&set);
    assert_eq!(ran(lock(&stage, "x", &["-n"])).await.code, Some(0));
    let primary = set.primary().await;
    for other in (0..3).filter(|other| *other != primary) {
        set.stop(other);
    }
    let refused = ran(lock(&stage, "x", &["-n"])).await;
    assert_eq!(refused.code, Some(69), "{}", refused.error);
    for other in (0..3).filter(|other| *other != primary) {
        set.cont(other);
    }
    assert_eq!(ran(lock(&stage, "x", &["--wait=20s"])).await.code, Some(0));
}
