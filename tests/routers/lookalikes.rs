//! Goal: leasehold recognizes an unsupported MongoDB-compatible product by its replies. The daemon
//! then logs one error, and `leasehold check` fails.

use leasehold_testbed::Router;
use mongodb::bson::{Document, doc};

use crate::fixture::{Cluster, LONG, eventually};

#[tokio::test]
async fn products_that_are_not_mongodb_are_reported_once() {
    let ferret = doc! { "ferretdb": { "version": "v2.7.0" }, "version": "7.0.77" };
    let cosmos = doc! { "_t": "BuildInfoResponse", "version": "4.2.0" };
    let postgres = doc! { "internal": { "documentdb_versions": ["0.109-0"] } };
    let amazon = doc! { "me": "c1.node.eu-west-1.docdb.amazonaws.com:27017" };
    for (command, fields, product) in [
        ("buildInfo", ferret, "FerretDB"),
        ("buildInfo", cosmos, "Azure Cosmos DB"),
        ("hello", postgres, "DocumentDB on PostgreSQL"),
        ("hello", amazon, "Amazon DocumentDB"),
    ] {
        let cluster = Cluster::shared().await;
        for router in &cluster.routers {
            router.overlay(command, fields.clone());
        }
        let (a, b) = cluster.pair().await;
        for daemon in [&a, &b] {
            daemon.wait_logged("unsupported server", LONG).await;
        }
        a.wait_renewal(LONG).await;
        a.wait_renewal(LONG).await;
        for daemon in [&a, &b] {
            let lines = daemon.log_records();
            let said = lines.iter().filter(|line| line["product"] == product);
            let said: Vec<_> = said.collect();
            assert_eq!(said.len(), 1, "{}", daemon.logs());
            assert_eq!(said[0]["level"], "ERROR");
            assert_eq!(daemon.logged("unsupported"), 1, "{}", daemon.logs());
        }
        let (check, code, failed) = cluster.check().await;
        let expected = format!("unsupported: {product}");
        let detail = check["detail"].as_str().unwrap_or_default();
        assert!(detail.starts_with(&expected), "{check}");
        assert_eq!((check["result"].as_str(), code), (Some("failed"), 2));
        assert_eq!(failed, [check]);
    }
}

#[tokio::test]
async fn a_product_is_recognized_although_its_first_reply_is_an_error() {
    let cluster = Cluster::shared().await;
    let everywhere = |fields: Document| {
        for router in &cluster.routers {
            router.overlay("buildInfo", fields.clone());
        }
    };
    everywhere(doc! { "ok": 0, "code": 8000, "codeName": "AtlasError", "errmsg": "busy" });
    let a = cluster.stage.candidate("a").leading(LONG).await;
    a.wait_logged("connected to MongoDB", LONG).await;
    eventually("the daemon has asked for the product", async || {
        let commands = cluster.routers.iter().flat_map(Router::commands);
        commands
            .into_iter()
            .any(|sent| sent.contains_key("buildInfo"))
    })
    .await;
    everywhere(doc! { "ok": 1, "ferretdb": { "version": "v2.7.0" } });
    a.wait_logged("unsupported server", LONG).await;
}

#[tokio::test]
async fn a_lock_on_a_product_that_is_not_mongodb_is_reported_once() {
    let cluster = Cluster::shared().await;
    for router in &cluster.routers {
        router.overlay(
            "hello",
            doc! { "internal": { "documentdb_versions": ["0.109-0"] } },
        );
    }
    let words = ["lock", "nightly", "--", "sleep", "1"];
    let uri = Router::uri(&cluster.routers);
    let job = cluster.stage.command(&uri, &words).output().await;
    let job = job.expect("it runs");
    assert!(job.status.success(), "{job:?}");
    let shown = String::from_utf8_lossy(&job.stderr);
    assert_eq!(shown.matches("unsupported server").count(), 1, "{shown}");
}

#[tokio::test]
async fn mongodb_is_not_reported() {
    let cluster = Cluster::shared().await;
    let (a, _b) = cluster.pair().await;
    a.wait_logged("connected to MongoDB", LONG).await;
    assert_eq!(a.logged("unsupported"), 0, "{}", a.logs());
    assert!(Router::uri(&cluster.routers).contains(','), "there are two");
}
