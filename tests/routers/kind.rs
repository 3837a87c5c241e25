//! Goal: leasehold recognizes a router by its `hello` reply, which names no replica set. For a
//! router, leasehold reports a sharded cluster, and confirms a rolled-back document with a
//! linearizable read.

use serde_json::{Value, json};

use crate::fixture::{Cluster, LONG, eventually};

#[tokio::test]
async fn routers_are_shown_as_a_sharded_cluster() {
    let cluster = Cluster::shared().await;
    let (a, b) = cluster.pair().await;
    for daemon in [&a, &b] {
        daemon.wait_logged("connected to MongoDB", LONG).await;
        let line = daemon.log_records().into_iter().find(|line| {
            line["message"]
                .as_str()
                .is_some_and(|text| text.starts_with("connected to MongoDB"))
        });
        let line = line.expect("the line was logged");
        assert_eq!(line["store"], "sharded cluster through routers", "{line}");
        let (_, status) = daemon.http_json("/status").await;
        let store = &status["store"];
        assert_eq!(
            (&store["kind"], &store["set"]),
            (&json!("sharded"), &Value::Null)
        );
        let (_, metrics) = daemon.http("/metrics").await.expect("answered");
        let info = metrics
            .lines()
            .find(|line| line.starts_with("leasehold_store_info{"));
        assert!(
            info.is_some_and(|info| info.contains(r#"kind="sharded""#)),
            "{info:?}"
        );
    }
    let (check, code, failed) = cluster.check().await;
    assert_eq!(check["result"], "warning", "{check}");
    let detail = check["detail"].as_str().unwrap_or_default();
    assert!(
        detail.starts_with("sharded cluster through routers"),
        "{detail}"
    );
    assert_eq!((code, failed), (1, vec![]));
}

#[tokio::test]
async fn a_rollback_is_confirmed_by_a_linearizable_read_through_a_router() {
    let cluster = Cluster::shared().await;
    let (a, b) = cluster.pair().await;
    cluster.stage.stored().delete().await;
    for daemon in [&a, &b] {
        daemon.wait_logged("lease document is older", LONG).await;
    }
    eventually("both have sent it", async || {
        let sent = cluster.routers.iter().flat_map(|router| router.commands());
        let confirming = sent.filter(|command| {
            let concern = command.get_document("readConcern");
            let level = concern.and_then(|concern| concern.get_str("level"));
            command.contains_key("find") && level.is_ok_and(|level| level == "linearizable")
        });
        confirming.count() >= 2
    })
    .await;
}
