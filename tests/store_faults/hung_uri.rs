//! Goal: after a failed call, the daemon rereads the file that contains the connection string. A
//! hanging disk then delays neither renewals nor other calls. Method: mount an unresponsive file
//! system over the file's directory, and make renewals fail.

use std::path::Path;

use leasehold_testbed::{
    Daemon, DaemonBuilder, DaemonTimings, HungDisk, Scratch, eventually, skip,
};
use mongodb::bson::doc;

use crate::cast::store_error;
use crate::fixture::{LONG, PROGRAM, set_of_one};

/// Duration of an outage, in seconds. The daemon must replace its client within this time, which is
/// longer than a lease duration and a few calls.
const REPLACED_AFTER: u64 = 6;

fn daemon(lease: &str, uri_file: &Path) -> DaemonBuilder {
    Daemon::builder(PROGRAM)
        .lease(lease)
        .identity("a")
        .timings(DaemonTimings::SHORT)
        .flag(&format!("--mongodb-uri-file={}", uri_file.display()))
}

#[tokio::test]
async fn i1_a_connection_string_on_a_hanging_disk_delays_no_renewal() {
    let (set, scratch) = (set_of_one().await, Scratch::new());
    let file = scratch.path().join("uri");
    std::fs::write(&file, set.uri()).expect("written");
    let daemon = daemon("hung-uri", &file).leading(LONG).await;
    let transitions = daemon.status()["transitions"].clone();
    let Some(hung) = HungDisk::over(scratch.path()) else {
        return skip("needs the right to mount, and FUSE");
    };
    let closed = doc! { "failCommands": ["findAndModify"], "closeConnection": true };
    let fail = doc! { "mode": { "times": 1 }, "data": closed };
    set.fail_command(0, fail).await;
    daemon.wait_operations("renew", "unknown", 1.0).await;
    for _ in 0..20 {
        daemon.wait_renewal(LONG).await;
    }
    assert_eq!(
        daemon.status()["transitions"],
        transitions,
        "{}",
        daemon.logs()
    );
    drop(hung);
}

#[tokio::test]
async fn a_deleted_connection_string_does_not_end_the_leadership() {
    let (set, scratch) = (set_of_one().await, Scratch::new());
    let file = scratch.path().join("uri");
    std::fs::write(&file, set.uri()).expect("written");
    let daemon = daemon("deleted-uri", &file).leading(LONG).await;
    let transitions = daemon.status()["transitions"].clone();
    std::fs::remove_file(&file).expect("removed");
    // A missing right makes the daemon log in again with a new client.
    let refused = doc! { "failCommands": ["findAndModify"], "errorCode": 13 };
    let fail = doc! { "mode": { "times": 1 }, "data": refused };
    set.fail_command(0, fail).await;
    daemon.wait_operations("renew", "unknown", 1.0).await;
    for _ in 0..20 {
        daemon.wait_renewal(LONG).await;
    }
    assert_eq!(
        daemon.status()["transitions"],
        transitions,
        "{}",
        daemon.logs()
    );
}

#[tokio::test]
async fn a_connection_string_on_a_hanging_disk_does_not_prevent_a_new_client() {
    let (set, scratch) = (set_of_one().await, Scratch::new());
    let file = scratch.path().join("uri");
    std::fs::write(&file, set.uri()).expect("written");
    let daemon = daemon("hung-client", &file).leading(LONG).await;
    let Some(hung) = HungDisk::over(scratch.path()) else {
        return skip("needs the right to mount, and FUSE");
    };
    set.kill(0);
    let blamed = format!("{} has not been readable for ", file.display());
    // After a lease duration without an answer, the daemon replaces its client.
    eventually(
        "a new client uses the known connection string",
        async || {
            let error = store_error(&daemon).await;
            let waited = error.split_once(&blamed).map(|(_, rest)| rest);
            let seconds = waited.and_then(|rest| rest.split_once("s:")?.0.parse().ok());
            seconds.is_some_and(|seconds: u64| seconds >= REPLACED_AFTER)
        },
    )
    .await;
    set.restart(0).await;
    daemon.wait_leads(LONG).await;
    drop(hung);
}
