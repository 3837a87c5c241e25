//! Goal: for a correct installation, the command reports no failure, needs only the documented
//! role, and never writes to MongoDB.

use futures_util::TryStreamExt;
use leasehold_testbed::Daemon;
use leasehold_testbed::wait::LONG;
use mongodb::bson::{DateTime, Document, Uuid, doc};

use crate::scene::{COLLECTION, LEASE, PROGRAM, ROLE, Scene};

/// Returns the collection's documents and the oplog entries of its database.
async fn stored(scene: &Scene) -> (Vec<Document>, Vec<Document>) {
    let client = scene.set.client();
    let leases = client.database(&scene.database).collection(COLLECTION);
    let documents = leases.find(doc! {}).await.unwrap().try_collect();
    let log = client.database("local").collection("oplog.rs");
    // Matches the whole database, because creating a collection adds an oplog entry for
    // `DATABASE.$cmd`.
    let ours = doc! { "ns": { "$regex": format!("^{}\\.", scene.database) } };
    let writes = log.find(ours).await.unwrap().try_collect();
    (documents.await.unwrap(), writes.await.unwrap())
}

#[tokio::test]
async fn a_new_installation_with_the_documented_role_passes_without_a_write() {
    let scene = Scene::new().await;
    let user = scene.user(&ROLE).await;
    let before = stored(&scene).await;
    assert_eq!(before, (Vec::new(), Vec::new()));
    let answer = scene.check(&scene.set.uri_for(&user)).run().await;
    assert_eq!(answer.troubles(), [""; 0], "{}", answer.stdout);
    assert_eq!(stored(&scene).await, before);
    assert!(!scene.path("status").exists());
    // A busy machine may answer later than a second.
    let mut said = answer.stderr.lines();
    assert!(
        said.all(|line| line.starts_with("connecting to ")),
        "{}",
        answer.stderr
    );
    answer.keeps_secrets();
    answer.exits(0);
    answer.says("lease-document", "ok", "does not exist yet");
    // Every check that the role permits must have run.
    let unseen = [
        "election-timeout",
        "catch-up",
        "pod",
        "clock-source",
        "hints",
    ];
    for check in answer.checks() {
        let name = check["name"].as_str().unwrap();
        let carried_out = check["result"] != "skipped";
        assert!(carried_out || unseen.contains(&name), "{check:#}");
    }
    for name in ["round-trip", "majority-write", "change-stream-delay"] {
        let check = answer.one(name);
        let [p50, p99] = ["p50_ms", "p99_ms"].map(|key| check[key].as_f64().unwrap());
        assert!(0.0 < p50 && p50 <= p99, "{check:#}");
    }
    assert_eq!(answer.all("server").len(), 3);
}

#[tokio::test]
async fn next_to_a_running_leader_all_checks_pass_and_the_lease_does_not_change() {
    let scene = Scene::new().await;
    let user = scene.user(&ROLE).await;
    let uri = scene.set.uri_for(&user);
    let leader = Daemon::builder(PROGRAM)
        .lease(LEASE)
        .identity("leader")
        .uri(&uri)
        .flag(&format!("--mongodb-database={}", scene.database))
        .leading(LONG)
        .await;
    // The status file may show the leader before the log does.
    leader.wait_logged("\"to\":\"leader\"", LONG).await;
    let (token, changes) = (leader.token(), leader.logged("role changed"));
    let port = format!("--http-listen=127.0.0.1:{}", leader.port());
    let directory = format!("--status-directory={}", leader.status_directory().display());
    let check = || scene.check(&uri).flag(&port).flag(&directory);
    let answer = check().run().await;
    assert_eq!(answer.troubles(), [""; 0], "{}", answer.stdout);
    let pid = format!("process {}", leader.pid());
    answer.says("status-directory", "ok", "in use by a running leasehold");
    answer.says("status-directory", "ok", &pid);
    answer.says(
        "http-port",
        "ok",
        "in use by a running leasehold of this lease: leader",
    );
    answer.says("deployment-record", "ok", "unchanged: replica set testbed");
    answer.says("lease-document", "ok", "held by leader with token 1");
    // The check did not affect the daemon.
    assert!(leader.leads());
    assert_eq!(leader.token(), token);
    assert_eq!(leader.logged("role changed"), changes, "{}", leader.logs());

    // Another lease needs a separate port.
    let other = check().flag("--lease=invoices").run().await;
    other.says(
        "http-port",
        "failed",
        &format!("127.0.0.1:{}", leader.port()),
    );
    assert_eq!(other.code, 2);

    // The leader has exited, so any new write would come from the command.
    assert_eq!(leader.term_and_exit(LONG).await, 0);
    let before = stored(&scene).await;
    assert!(before.0.len() == 1 && before.1.len() > 1, "{before:?}");
    let answer = check().run().await;
    answer.says("http-port", "ok", "is free");
    answer.says("status-directory", "ok", "is writable and not in use");
    assert_eq!(stored(&scene).await, before);
}

#[tokio::test]
async fn foreign_documents_and_paused_leases_are_reported() {
    let scene = Scene::new().await;
    let uri = scene.set.uri();
    let client = scene.set.client();
    let leases = client.database(&scene.database).collection(COLLECTION);
    let lock = doc! { "_id": LEASE, "schema": 1, "kind": "lock", "token": 1_i64 };
    leases.insert_one(lock).await.unwrap();
    let answer = scene.check(&uri).run().await;
    answer.says("lease-document", "failed", "is a lock, not a lease");
    assert_eq!(answer.code, 2);

    let mut lease = doc! { "_id": "invoices", "schema": 1, "kind": "lease", "token": 7_i64 };
    lease.extend(doc! { "revision": Uuid::new(), "holder": null, "paused": true });
    leases.insert_one(lease).await.unwrap();
    let answer = scene.check(&uri).flag("--lease=invoices").run().await;
    answer.says("lease-document", "warning", "paused, with token 7");
}

#[tokio::test]
async fn a_holder_whose_last_write_is_old_causes_a_warning() {
    let scene = Scene::new().await;
    let user = scene.user(&ROLE).await;
    let uri = scene.set.uri_for(&user);
    let now = DateTime::now().timestamp_millis();
    let lease = |name: &str, written_hours_ago: i64| {
        let renewed_at = DateTime::from_millis(now - written_hours_ago * 3_600_000);
        let mut holder = doc! { "identity": "pod-4", "session": Uuid::new(), "claim": Uuid::new() };
        holder.extend(doc! { "renewed_at": renewed_at, "lease_duration_ms": 24_000_i64 });
        let mut lease = doc! { "_id": name, "schema": 1, "kind": "lease", "token": 1_i64 };
        lease.extend(doc! { "revision": Uuid::new(), "holder": holder });
        lease
    };
    let client = scene.set.client();
    let database = client.database(&scene.database);
    let leases = database.collection::<Document>(COLLECTION);
    // The second holder's clock is ahead.
    let documents = [lease(LEASE, 48), lease("invoices", -1)];
    leases.insert_many(documents).await.unwrap();
    let answer = scene.check(&uri).run().await;
    answer.says(
        "lease-document",
        "warning",
        "held by pod-4 with token 1; last renewal 2d ago by the holder's clock (lease duration 24s)",
    );
    let remedy = "leasehold describe orders shows whether a candidate answers";
    answer.says("lease-document", "warning", remedy);
    answer.exits(1);
    let answer = scene.check(&uri).flag("--lease=invoices").run().await;
    let finding = answer.one("lease-document");
    assert_eq!(finding["result"], "warning", "{finding:#}");
    let detail = finding["detail"].as_str().expect("a detail");
    let dated = "held by pod-4 with token 1; last renewal dated 59m";
    assert!(detail.starts_with(dated), "{detail}");
}

#[tokio::test]
async fn the_text_output_has_one_line_for_each_check_and_a_summary() {
    let scene = Scene::new().await;
    let user = scene.user(&ROLE).await;
    let check = scene.check(&scene.set.uri_for(&user));
    let answer = check.flag("--output=text").run().await;
    assert!(
        !answer.stdout.contains('\x1b'),
        "no color without a terminal"
    );
    let headings = answer.stdout.lines().filter(|line| !line.starts_with(' '));
    let mut headings: Vec<_> = headings.collect();
    let summary = headings.pop().unwrap();
    assert!(
        summary.contains(" ok, ") && summary.ends_with(" skipped"),
        "{summary}"
    );
    let expected = [
        "host",
        "mongodb",
        "permissions",
        "reads-and-writes",
        "timings",
        "kubernetes",
    ];
    assert_eq!(headings, expected);
    answer.keeps_secrets();
}
