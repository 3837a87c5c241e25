//! Goal: the command warns if an election of the replica set may take longer than the configured
//! durations allow. The command uses the set's settings if the user may read them.

use leasehold_testbed::ReplicaSet;
use mongodb::bson::doc;

use crate::scene::{Check, ROLE, Scene};

/// Sets the durations that are recommended for Kubernetes. With default settings, a MongoDB
/// election takes longer.
fn short(check: Check) -> Check {
    check
        .flag("--lease-duration=15s")
        .flag("--lease-renew-deadline=10s")
        .flag("--lease-renew-interval=2s")
        .flag("--mongodb-operation-timeout=3s")
}

fn default(check: Check) -> Check {
    check
        .flag("--lease-duration=24s")
        .flag("--lease-renew-deadline=18s")
        .flag("--mongodb-operation-timeout=3s")
}

#[tokio::test]
async fn durations_shorter_than_a_default_election_cause_a_warning_with_the_arithmetic() {
    let scene = Scene::new().await;
    let user = scene.user(&ROLE).await;
    let unseen = short(scene.check(&scene.set.uri_for(&user))).run().await;
    unseen.says("election-timeout", "warning", "role clusterMonitor");
    unseen.says("election-timeout", "warning", "= 16.8s; renew_deadline 10s");
    unseen.says("election-timeout", "warning", "rs.conf().settings");
    assert_eq!(unseen.code, 1);
    // An administrator may read the set's settings. With these settings, elections are shorter than
    // by default.
    let seen = short(scene.check(&scene.set.uri())).run().await;
    seen.says("election-timeout", "ok", "= 7.6s; renew_deadline 10s");
}

#[tokio::test]
async fn the_warning_depends_on_the_settings_of_the_set() {
    let scene = Scene::new().await;
    let set = ReplicaSet::builder()
        .members(1)
        .default_election()
        .start()
        .await;
    let answer = short(scene.check(&set.uri())).run().await;
    answer.says(
        "election-timeout",
        "warning",
        "raise lease.renew_deadline to 16.8s",
    );
    answer.says("catch-up", "warning", "has no limit");
    let needed = answer.one("election-timeout")["needed_ms"].clone();
    assert_eq!(needed, 16_800.0);

    let reply = set
        .command(0, doc! { "replSetGetConfig": 1 })
        .await
        .unwrap();
    let mut config = reply.get_document("config").unwrap().clone();
    let version = config.get_i32("version").unwrap();
    config.insert("version", version + 1);
    let settings = config.get_document_mut("settings").unwrap();
    settings.insert("catchUpTimeoutMillis", 1000);
    let changed = set.command(0, doc! { "replSetReconfig": config }).await;
    changed.unwrap();
    let answer = default(scene.check(&set.uri())).run().await;
    answer.says("election-timeout", "ok", "renew_deadline 18s");
    answer.says(
        "catch-up",
        "ok",
        "catchUpTimeoutMillis 1s = 13.1s without writes",
    );
}
