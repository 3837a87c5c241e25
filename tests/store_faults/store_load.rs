//! Goal: a leader sends one findAndModify per renew_interval. A follower with a change stream sends
//! only getMore, one read per lease_duration and the driver's own hello. Each command uses the read
//! and write concerns that the protocol requires, regardless of the connection string. Method: read
//! the primary's profiler after a fixed time, because the test must prove the absence of commands.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::TryStreamExt as _;
use leasehold_testbed::{DaemonTimings, ReplicaSet};
use mongodb::bson::{Document, doc};

use crate::fixture::{LONG, pair, set_of_one, stage_on};

const OBSERVED: Duration = Duration::from_secs(12);

#[tokio::test]
async fn a_leader_sends_one_write_per_interval_and_a_follower_one_read_per_lease_duration() {
    // Use a separate replica set, because the profiler of `admin` records all clients.
    let set = set_of_one().await;
    let stage = stage_on(&set).timings(DaemonTimings::DEFAULT);
    let (a, b) = pair(&stage).await;
    a.wait_stream().await;
    b.wait_stream().await;
    a.wait_renewal(LONG).await;
    let databases = [stage.database(), "admin"];
    for database in databases {
        profile(&set, database, 2).await;
    }
    tokio::time::sleep(OBSERVED).await;
    for database in databases {
        profile(&set, database, 0).await;
    }
    let leader = commands(&set, &databases, "leasehold/a").await;
    let follower = commands(&set, &databases, "leasehold/b").await;

    let writes = leader.get("findAndModify").copied().unwrap_or(0);
    // In 12 s the leader sends four writes, one every 3 s. The test allows one write more or less.
    assert!((3..=5).contains(&writes), "{leader:?}");
    let own = |counts: &BTreeMap<String, usize>, allowed: &[&str]| {
        let mut names = counts.keys();
        names.all(|name| allowed.contains(&name.as_str()))
    };
    let idle = ["getMore", "hello", "isMaster", "ismaster"];
    assert!(
        own(&follower, &[&idle[..], &["find"]].concat()),
        "{follower:?}"
    );
    // At most one read is due within 12 s, because the lease lasts 24 s.
    assert!(
        follower.get("find").is_none_or(|reads| *reads <= 1),
        "{follower:?}"
    );
    assert!(
        own(&leader, &[&idle[..], &["findAndModify"]].concat()),
        "{leader:?}"
    );
    assert!(follower.contains_key("getMore"), "{follower:?}");
}

#[tokio::test]
async fn reads_and_writes_use_the_required_concerns_whatever_the_uri_says() {
    let set = set_of_one().await;
    let stage = stage_on(&set);
    profile(&set, stage.database(), 2).await;
    let weak = "w=1&journal=false&readConcernLevel=local&retryWrites=true&retryReads=true";
    let uri = format!("{}&{weak}", set.uri());
    let a = stage.candidate("a").uri(&uri).leading(LONG).await;
    let b = stage.candidate("b").uri(&uri).following("a", LONG).await;
    a.wait_renewal(LONG).await;
    a.kill();
    b.wait_leads(LONG).await;
    stage.stored().delete().await;
    b.wait_not_leader(LONG).await;
    b.wait_leads(LONG).await;
    b.term_and_exit(LONG).await;
    profile(&set, stage.database(), 0).await;

    let mut levels = BTreeSet::new();
    let mut writes = 0;
    for app_name in ["leasehold/a", "leasehold/b"] {
        for entry in entries(&set, stage.database(), app_name).await {
            let Ok(command) = entry.get_document("command") else {
                continue;
            };
            let concern = |name| command.get_document(name).cloned().unwrap_or_default();
            // Hints are exempt, because no decision depends on them.
            let hints = command
                .get_str("find")
                .is_ok_and(|name| name.ends_with(".hints"));
            if command.contains_key("find") && !hints {
                let level = concern("readConcern").get_str("level").map(str::to_owned);
                levels.insert(level.unwrap_or_default());
            }
            if command.contains_key("findAndModify") || command.contains_key("insert") {
                let concern = concern("writeConcern");
                assert_eq!(concern.get_str("w").ok(), Some("majority"), "{command}");
                assert_eq!(concern.get_bool("j").ok(), Some(true), "{command}");
                assert!(concern.contains_key("wtimeout"), "{command}");
                assert!(!command.contains_key("txnNumber"), "retried: {command}");
                writes += 1;
            }
        }
    }
    assert_eq!(Vec::from_iter(&levels), ["linearizable", "majority"]);
    // The leader sends at least a create, an acquisition and a renewal.
    assert!(writes >= 3, "{writes}");
}

async fn profile(set: &ReplicaSet, database: &str, level: i32) {
    let command = doc! { "profile": level, "slowms": 0 };
    let set = set.client().database(database).run_command(command).await;
    set.unwrap_or_else(|error| panic!("set the profiler: {error}"));
}

async fn commands(set: &ReplicaSet, databases: &[&str], app_name: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for database in databases {
        for entry in entries(set, database, app_name).await {
            let name = match entry.get_document("command") {
                Ok(command) => command.keys().next().cloned().unwrap_or_default(),
                Err(_) => entry.get_str("op").unwrap_or("none").to_owned(),
            };
            *counts.entry(name).or_default() += 1;
        }
    }
    counts
}

async fn entries(set: &ReplicaSet, database: &str, app_name: &str) -> Vec<Document> {
    let entries = set
        .client()
        .database(database)
        .collection::<Document>("system.profile")
        .find(doc! { "appName": app_name })
        .await;
    let entries = entries.unwrap_or_else(|error| panic!("read the profile: {error}"));
    entries.try_collect().await.expect("a whole profile")
}
