//! Goal: for each MongoDB error, each role reports the name, the code and a remedy. A command exits
//! with 69, not with 75, because 75 means that another process holds the lock. All processes
//! recover without a restart. Method: cause each error with a fail point, first for all calls, then
//! only for writes, and check a leader, a follower, a holder, a waiter, and each command. The test
//! prints the results as a table.

#![allow(clippy::print_stdout, reason = "the table is for humans")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use leasehold_testbed::{DaemonTimings, ReplicaSet, Stage};
use mongodb::bson::doc;

use crate::cast::{Cast, FREE, lock, ran, refused};
use crate::fixture::{LONG, SURVIVING, set_of_one, stage_on};

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

/// Errors of a server that is no longer primary. The driver then checks the server's state, and may
/// meanwhile report that there is no primary.
const ELECTIONS: [(i32, &str); 7] = [
    (91, "ShutdownInProgress"),
    (189, "PrimarySteppedDown"),
    (10107, "NotWritablePrimary"),
    (11600, "InterruptedAtShutdown"),
    (11602, "InterruptedDueToReplStateChange"),
    (13435, "NotPrimaryNoSecondaryOk"),
    (13436, "NotPrimaryOrSecondary"),
];

/// Login errors that are not about the credentials.
const LOGINS: [(i32, &str); 9] = [
    (6, "HostUnreachable"),
    (50, "MaxTimeMSExpired"),
    (91, "ShutdownInProgress"),
    (96, "OperationFailed"),
    (189, "PrimarySteppedDown"),
    (262, "ExceededTimeLimit"),
    (365, "TemporarilyUnavailable"),
    (8000, "AtlasError"),
    (11600, "InterruptedAtShutdown"),
];

/// Number of errors that one replica set tests in sequence, because a server has only one fail
/// point. Several replica sets run concurrently.
const ERRORS_PER_SET: usize = 7;
/// Number of concurrent commands on a replica set. If more commands ran at once, some would time
/// out on a busy machine.
const AT_ONCE: usize = 6;
const WRITES: [&str; 3] = ["findAndModify", "insert", "update"];
const READS: [&str; 3] = ["find", "aggregate", "getMore"];
/// Minimum length of a remedy. The shortest remedy is "the URI has no user".
const REMEDY_MIN: usize = 10;
const SHORT: &str = "--lease-duration=4s";
const BRIEF: &str = "--timeout=2s";

/// Commands that need MongoDB. `orders` is a lease; `held` is a lock that a job holds.
const COMMANDS: [&[&str]; 13] = [
    &["lock", FREE, "-n", SHORT, "--", "true"],
    &["leases", "--observe=0s", BRIEF],
    &["describe", "orders", "--observe=0s", BRIEF],
    &["step-down", "orders", "--no-wait", BRIEF],
    &[
        "transfer",
        "orders",
        "--to=b",
        "--force",
        "--no-wait",
        BRIEF,
    ],
    &["pause", "orders", "--no-wait", BRIEF],
    &["resume", "orders", "--no-wait", BRIEF],
    &["cancel", "orders", BRIEF],
    &["repair", "orders", "--token-at-least=9", BRIEF],
    &["locks", BRIEF],
    &["locks", "break", "held", BRIEF],
    &["locks", "break", "held", "--force", "--yes", BRIEF],
    &["locks", "prune", "--unused-for=1ms", BRIEF],
];

/// Commands that write immediately if reads succeed.
const WRITERS: [&[&str]; 6] = [
    &["lock", FREE, "--wait=2s", "--", "true"],
    &["step-down", "orders", "--no-wait", BRIEF],
    &[
        "transfer",
        "orders",
        "--to=b",
        "--force",
        "--no-wait",
        BRIEF,
    ],
    &["pause", "orders", "--no-wait", BRIEF],
    &["locks", "break", "held", "--force", "--yes", BRIEF],
    &["locks", "prune", "--unused-for=1ms", BRIEF],
];

/// The lease does not expire until every command has run and failed, which takes about 8 s on an
/// idle machine, and several times as long on a busy one.
const THROUGHOUT: DaemonTimings = DaemonTimings {
    lease_duration: Duration::from_secs(45),
    renew_deadline: Duration::from_secs(40),
    ..SURVIVING
};

async fn fail(set: &ReplicaSet, commands: &[&str], code: i32) {
    let data = doc! { "failCommands": commands.to_vec(), "errorCode": code };
    set.fail_command(0, doc! { "mode": "alwaysOn", "data": data })
        .await;
}

/// Repeats each command until its last line names the error and a remedy.
async fn all_refused(stage: &Stage, commands: &[&[&str]], shown: &str) {
    let named = format!("({shown}): ");
    let parts = [named.as_str()];
    let answers = commands.iter();
    let answers = answers.map(|arguments| refused(stage, arguments, &parts));
    let answers: Vec<_> = stream::iter(answers).buffered(AT_ONCE).collect().await;
    for answer in answers {
        let remedy = answer.last().split_once(&named).map(|(_, remedy)| remedy);
        assert!(
            remedy.is_some_and(|remedy| remedy.len() > REMEDY_MIN),
            "{}",
            answer.error
        );
    }
}

async fn each_of(errors: &[(i32, &str)]) {
    let set = set_of_one().await;
    let stage = stage_on(&set).timings(THROUGHOUT);
    assert_eq!(ran(lock(&stage, FREE, &["-n"])).await.code, Some(0));
    let mut cast = Cast::start(stage.clone(), "45s").await;
    for (before, (code, name)) in errors.iter().enumerate() {
        let shown = format!("{name}, code {code}");
        fail(&set, &[READS, WRITES].concat(), *code).await;
        tokio::join!(all_refused(&stage, &COMMANDS, &shown), cast.meet(&shown));
        fail(&set, &WRITES, *code).await;
        all_refused(&stage, &WRITERS, &shown).await;
        set.clear_fail_point(0).await;
        cast.unharmed(before + 1).await;
        println!("{code:>6} {name:36} 69 × 20, same token, still held and waited for");
    }
    cast.end().await;
    assert_eq!(ran(lock(&stage, FREE, &["-n"])).await.code, Some(0));
}

#[tokio::test]
async fn each_error_of_a_server_is_named_in_each_role_and_recovered_from() {
    println!(
        "{:>6} {:36} commands, leader, holder and waiter",
        "code", "error"
    );
    join_all(ERRORS.chunks(ERRORS_PER_SET).map(each_of)).await;
}

#[tokio::test]
async fn errors_of_a_server_that_is_no_longer_primary_are_not_a_conflict() {
    let set = set_of_one().await;
    let stage = stage_on(&set).timings(THROUGHOUT);
    let leader = stage.candidate("a").leading(LONG).await;
    for (code, name) in ELECTIONS {
        fail(&set, &[READS, WRITES].concat(), code).await;
        let shown = format!("({name}, code {code}): ");
        let says = [shown.as_str(), "stepped down", "no primary", "no answer"];
        let uri = set.uri();
        let end = Instant::now() + LONG;
        let mut is_named = false;
        while !is_named {
            assert!(Instant::now() < end, "no command names {name}");
            let answers = COMMANDS.iter();
            let answers = answers.map(|arguments| ran(stage.command(&uri, arguments)));
            let answers: Vec<_> = stream::iter(answers).buffered(AT_ONCE).collect().await;
            for answer in answers {
                assert_eq!(answer.code, Some(69), "{name}: {}", answer.error);
                let said = says.iter().any(|said| answer.last().contains(said));
                assert!(said, "{name}: {}", answer.error);
                is_named |= answer.last().contains(&shown);
            }
        }
        set.clear_fail_point(0).await;
        leader.wait_renewal(LONG).await;
        assert_eq!(leader.token(), Some(1), "{name}: {}", leader.logs());
    }
}

#[tokio::test]
async fn an_error_during_a_login_is_named_and_retried_and_does_not_blame_the_password() {
    let set = ReplicaSet::builder().members(1).auth().start().await;
    let set = Arc::new(set);
    let stage = stage_on(&set).timings(SURVIVING);
    let job = ["lock", FREE, "--identity=job"];
    for (code, name) in LOGINS {
        let error = doc! { "errorCode": code };
        let of_job = (0, "leasehold/job");
        let sasl = ["saslContinue"];
        set.fail_commands_of(of_job, &sasl, "alwaysOn", error.clone())
            .await;
        let shown = format!("({name}, code {code}): ");
        // With a shorter lease, the operation timeout could interrupt a login on a busy machine.
        let at_once = [&job[..], &["-n", "--lease-duration=8s", "--", "true"]].concat();
        let answer = refused(&stage, &at_once, &[&shown]).await;
        assert!(!answer.error.contains("password"), "{}", answer.error);
        set.fail_commands_of(of_job, &sasl, doc! { "times": 1 }, error)
            .await;
        let waiting = [&job[..], &["--wait=20s", "--", "true"]].concat();
        let answer = ran(stage.command(&set.uri(), &waiting)).await;
        assert_eq!(answer.code, Some(0), "{name}: {}", answer.error);
    }
}
