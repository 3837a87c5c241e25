//! Goal: the file with the connection string is read again after a failed call, and a disk that hangs
//! holds up neither the renewals nor the calls.
//! Method: a file system over the directory of the file that answers nothing, and failed renewals.

use leasehold_testbed::{Daemon, DaemonTimings, HungDisk, Scratch, skip};
use mongodb::bson::doc;

use crate::fixture::{LONG, PROGRAM, set_of_one};

#[tokio::test]
async fn i1_a_connection_string_on_a_disk_that_hangs_costs_no_renewal() {
    let (set, scratch) = (set_of_one().await, Scratch::new());
    let file = scratch.path().join("uri");
    std::fs::write(&file, set.uri()).expect("written");
    let daemon = Daemon::builder(PROGRAM)
        .lease("hung-uri")
        .identity("a")
        .timings(DaemonTimings::SHORT)
        .flag(&format!("--mongodb-uri-file={}", file.display()));
    let daemon = daemon.leading(LONG).await;
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
