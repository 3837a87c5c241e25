//! Goal: at startup, a daemon warns once if a MongoDB election would cost it the leadership. The
//! warning shows the time without writes and the remedy.

use leasehold_testbed::{Daemon, ReplicaSet};

use crate::contest::{Contest, LONG, PROGRAM, records};

/// The testbed sets `electionTimeoutMillis` to 2000.
const ARITHMETIC: &str = "electionTimeoutMillis 2s × 1.15 + 0.6s = 2.9s without writes";

#[tokio::test]
async fn a_single_warning_shows_the_duration_and_the_remedy() {
    let contest = Contest::new("store-elections-short").await;
    let daemon = contest.candidate("a").leading(LONG).await;
    let message = "a MongoDB election would end the leadership";
    daemon.wait_logged(message, LONG).await;
    daemon.wait_renewal(LONG).await;
    let [line] = &records(&daemon, message)[..] else {
        panic!("once: {}", daemon.logs());
    };
    assert_eq!(line["level"], "WARN");
    let said = line["message"].as_str().unwrap();
    let remedy = "to fix: raise lease.renew_deadline to 4.7s or more";
    assert!(said.contains(remedy), "{said}");
    assert_eq!(line["without_writes_ms"], 2_900, "{line}");
}

#[tokio::test]
async fn the_warning_mentions_assumed_settings() {
    let set = ReplicaSet::builder().members(1).auth().start().await;
    let actions = ["find", "insert", "update", "changeStream"];
    let user = set
        .add_user_with_actions("modest", "leasehold", "leases", &actions)
        .await;
    let daemon = Daemon::builder(PROGRAM)
        .lease("store-elections-unknown")
        .identity("a")
        .uri(&set.uri_for(&user))
        .flag("--lease-profile=fast");
    let daemon = daemon.leading(LONG).await;
    let message = "an election with MongoDB's default settings would end the leadership";
    daemon.wait_logged(message, LONG).await;
    let line = &records(&daemon, message)[0];
    let unknown = "the role lacks replSetGetConfig (clusterMonitor)";
    assert_eq!(line["settings_unknown"], unknown, "{line}");
}

#[tokio::test]
async fn the_fast_profile_fits_a_set_with_short_elections() {
    let contest = Contest::new("store-elections-fast").await;
    let daemon = Daemon::builder(PROGRAM)
        .lease("store-elections-fast")
        .identity("a")
        .uri(&contest.set().uri())
        .flag("--lease-profile=fast")
        .flag("--log-level=debug");
    let daemon = daemon.leading(LONG).await;
    let message = "the leadership survives a MongoDB election";
    daemon.wait_logged(message, LONG).await;
    let said = &records(&daemon, message)[0]["message"];
    assert!(said.as_str().unwrap().contains(ARITHMETIC), "{said}");
    assert_eq!(records(&daemon, "would end the leadership").len(), 0);
    let lease = contest.document().await;
    let holder = lease.get_document("holder").unwrap();
    assert_eq!(holder.get_i64("lease_duration_ms").unwrap(), 8_000);
}
