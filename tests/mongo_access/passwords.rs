//! Goal: a daemon can log in with a password (SCRAM). If the password is wrong, the daemon reports
//! the cause and the remedy, and retries. After a password rotation, the daemon reads the new
//! password from the file without a restart.

use std::time::Duration;

use leasehold_testbed::{DaemonTimings, LeaderMonitor, ReplicaSet};
use mongodb::bson::doc;

use crate::entrance::{LONG, eventually, keeps_secrets, stage, stays_out};

#[tokio::test]
async fn a_wrong_password_is_logged_and_retried_until_corrected() {
    let stage = stage().await;
    let set = stage.set();
    let user = set.add_user("forgetful", vec!["root".into()]).await;
    let right = set.uri_for(&user);
    let wrong = right.replace("p%40ss", "wr0ng-Secret");
    assert_ne!(right, wrong);
    let a = stage.candidate("a").uri(&wrong).start();
    a.wait_logged("authentication failed", LONG).await;
    a.wait_logged("check the password", LONG).await;
    stays_out(&a, "failed").await;
    keeps_secrets(&a, &["wr0ng-Secret"]).await;

    a.replace_uri(&right);
    a.wait_leads(LONG).await;
    let (ready, _) = a.http("/readyz").await.expect("an answer");
    assert_eq!(ready, 200);
    keeps_secrets(&a, &["wr0ng-Secret"]).await;
}

#[tokio::test]
async fn rotating_a_leaders_password_needs_no_restart_and_keeps_its_leadership() {
    // The lease outlasts two rotations on a busy machine, where a login can take seconds. Frequent
    // renewals make the daemon notice each rotation quickly.
    let stage = stage().await.timings(DaemonTimings {
        lease_duration: Duration::from_secs(90),
        renew_deadline: Duration::from_secs(75),
        operation_timeout: Duration::from_secs(5),
        ..DaemonTimings::DEMO
    });
    let set = stage.set();
    let user = set.add_user("rotating", vec!["root".into()]).await;
    let before = set.uri_for(&user);
    let a = stage.candidate("rotated").uri(&before).leading(LONG).await;
    let pid = a.pid();
    let monitor = LeaderMonitor::of([&a]);

    // First rotation: on the server, then in the file. Second rotation: in the file, then on the
    // server.
    let uri_with = |password: &str| before.replace("p%40ss%2Fword%3A%25", password);
    change_password(set, "n3w-Secret").await;
    close_connections(set).await;
    a.wait_logged("authentication failed", LONG).await;
    set.clear_fail_point(set.primary().await).await;
    a.replace_uri(&uri_with("n3w-Secret"));
    a.wait_renewal(LONG).await;
    a.replace_uri(&uri_with("n3wer-Secret"));
    change_password(set, "n3wer-Secret").await;
    let unknown = a.logs().matches("\"unknown\"").count();
    close_connections(set).await;
    eventually("close the connection", async || {
        a.logs().matches("\"unknown\"").count() > unknown
    })
    .await;
    set.clear_fail_point(set.primary().await).await;
    a.wait_renewal(LONG).await;
    assert_eq!(a.pid(), pid);
    assert_eq!(monitor.leaders(), ["rotated"]);
    keeps_secrets(&a, &["n3w-Secret", "n3wer-Secret"]).await;
}

async fn change_password(set: &ReplicaSet, password: &str) {
    let change = doc! { "updateUser": "rotating", "pwd": password };
    let changed = set.client().database("admin").run_command(change).await;
    changed.unwrap_or_else(|error| panic!("change the password: {error}"));
}

/// Closes each connection that renews the lease, so that the leader must log in with the new
/// password. MongoDB keeps connections open when a password changes, and a client may have several
/// authenticated connections.
async fn close_connections(set: &ReplicaSet) {
    let how = doc! { "closeConnection": true };
    let of_leader = (set.primary().await, "leasehold/rotated");
    set.fail_commands_of(of_leader, &["findAndModify"], "alwaysOn", how)
        .await;
}

#[tokio::test]
async fn an_unknown_user_is_distinguished_from_an_unreachable_server() {
    let stage = stage().await;
    let stranger = leasehold_testbed::User::with_password("stranger", "p@ss/word:%");
    let uri = stage.set().uri_for(&stranger);
    let a = stage.candidate("a").uri(&uri).start();
    a.wait_logged("authentication failed", LONG).await;
    stays_out(&a, "failed").await;
    // The daemon logs the error once and then at growing intervals, not for each attempt.
    let logs = a.logs();
    let warnings = a.logged("\"WARN\"");
    let attempts = a.operations("read", "failed").await;
    assert!(warnings <= 10, "{warnings} after {attempts}:\n{logs}");
    keeps_secrets(&a, &[]).await;
}
