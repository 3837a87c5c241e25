//! Goal: a connection string that is changed and leads to another replica set
//! is refused: otherwise its candidate would lead there beside the leader here.
//! Method: two sets, and the URI file of one daemon, which reads it again when
//! its calls fail, or is restarted on the directory in which it keeps in mind
//! where it belongs.

use std::sync::Arc;

use leasehold_testbed::{DaemonTimings, ReplicaSet, StoredLease, Witness, run};
use mongodb::bson::doc;

use crate::scene::{LONG, eventually, pair, renews, said, stage_on, token};

#[test]
fn i1_a_changed_connection_string_that_leads_to_another_set_is_refused() {
    run(async {
        let set = Arc::new(ReplicaSet::builder().members(1).start().await);
        let elsewhere = ReplicaSet::builder().members(1).start().await;
        let stage = stage_on(&set);
        let (a, b) = pair(&stage).await;
        let witness = Witness::of([&a, &b]);
        std::fs::write(b.directory().join("uri"), elsewhere.uri()).expect("writable");
        let data = doc! {
            "failCommands": ["find", "getMore"], "closeConnection": true,
            "appName": "leasehold/b",
        };
        set.fail_command(0, doc! { "mode": "alwaysOn", "data": data })
            .await;
        eventually("it refuses the string", async || {
            said(&b, "the MongoDB URI was changed and is refused") >= 1
        })
        .await;
        set.clear_fail_point(0).await;
        let lease = DaemonTimings::SHORT.lease_duration;
        let end = std::time::Instant::now() + lease * 3;
        while std::time::Instant::now() < end {
            renews(&a).await;
        }
        assert_eq!(witness.leaders(), ["a"]);
        let there = StoredLease::new(
            &elsewhere.client(),
            stage.database(),
            stage.collection(),
            "orders",
        );
        assert_eq!(there.try_get().await, None, "nothing was written there");
        // It goes on here, where it began.
        a.kill();
        b.wait_leads(LONG).await;
        assert_eq!(token(&b), Some(2));
        assert_eq!(stage.stored().holder().await.as_deref(), Some("b"));
    });
}

#[test]
fn i1_a_restart_does_not_follow_a_connection_string_to_another_set() {
    run(async {
        let set = Arc::new(ReplicaSet::builder().members(1).start().await);
        let elsewhere = ReplicaSet::builder().members(1).start().await;
        let stage = stage_on(&set);
        let (a, mut b) = pair(&stage).await;
        let witness = Witness::of([&a, &b]);
        let known = b.status_directory().join("deployment");
        eventually("it is written down", async || known.exists()).await;
        b.replace_uri(&elsewhere.uri());
        b.restart_same_directory();
        eventually("it refuses the string", async || {
            said(&b, "the MongoDB URI was changed and is refused") >= 1
        })
        .await;
        let detail = format!("remove {} of each", known.display());
        let records = b.log_records();
        assert!(
            records.iter().any(|r| r.to_string().contains(&detail)),
            "{detail} in {records:?}"
        );
        let lease = DaemonTimings::SHORT.lease_duration;
        let end = std::time::Instant::now() + lease * 3;
        while std::time::Instant::now() < end {
            renews(&a).await;
        }
        assert_eq!(witness.leaders(), ["a"]);
        let there = StoredLease::new(
            &elsewhere.client(),
            stage.database(),
            stage.collection(),
            "orders",
        );
        assert_eq!(there.try_get().await, None, "nothing was written there");
        // The move as the message has it: all stopped, the file removed.
        a.kill();
        b.kill();
        std::fs::remove_file(&known).expect("removed");
        b.restart_same_directory();
        b.wait_leads(LONG).await;
        assert_eq!(there.holder().await.as_deref(), Some("b"));
    });
}
