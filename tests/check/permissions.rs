//! Goal: the command names each missing right and its remedy, and still runs the other checks.

use leasehold_testbed::{ReplicaSet, User};
use mongodb::bson::{Document, doc};

use crate::scene::{Answer, COLLECTION, ROLE, Scene};

async fn without(action: &str) -> (Scene, Answer) {
    let scene = Scene::new().await;
    let others: Vec<_> = ROLE.into_iter().filter(|other| *other != action).collect();
    let user = scene.user(&others).await;
    let answer = scene.check(&scene.set.uri_for(&user)).run().await;
    answer.keeps_secrets();
    (scene, answer)
}

fn names(scene: &Scene, answer: &Answer, check: &str, result: &str, action: &str) {
    let database = &scene.database;
    let detail = format!("the user may not {action} on {database}.{COLLECTION}");
    answer.says(check, result, &detail);
    let remedy = format!("collection: \"{COLLECTION}\" }}, actions: [\"{action}\"] }}])");
    answer.says(check, result, &remedy);
    answer.says(check, result, "docs/mongodb.md");
}

#[tokio::test]
async fn without_find_the_checks_that_need_a_read_are_skipped() {
    let (scene, answer) = without("find").await;
    names(&scene, &answer, "find", "failed", "find");
    assert_eq!(answer.troubles(), ["find failed"], "{}", answer.stdout);
    answer.says("change-stream", "skipped", "requires find");
    answer.says("insert", "ok", "");
    answer.says("update", "ok", "");
    for name in ["majority-read", "linearizable-read", "majority-write"] {
        answer.says(name, "skipped", "find is not granted");
    }
    assert_eq!(answer.code, 2);
}

#[tokio::test]
async fn without_insert_the_lease_cannot_be_created() {
    let (scene, answer) = without("insert").await;
    names(&scene, &answer, "insert", "failed", "insert");
    assert_eq!(answer.troubles(), ["insert failed"], "{}", answer.stdout);
    assert_eq!(answer.code, 2);
}

#[tokio::test]
async fn without_update_the_lease_cannot_be_acquired() {
    let (scene, answer) = without("update").await;
    names(&scene, &answer, "update", "failed", "update");
    assert_eq!(answer.troubles(), ["update failed"], "{}", answer.stdout);
    answer.says("journal", "skipped", "update is not granted");
    assert_eq!(answer.code, 2);
}

#[tokio::test]
async fn a_missing_right_to_change_streams_is_a_warning() {
    let (scene, answer) = without("changeStream").await;
    names(&scene, &answer, "change-stream", "warning", "changeStream");
    answer.says("change-stream", "warning", "followers poll instead");
    let troubles = answer.troubles();
    assert_eq!(troubles, ["change-stream warning"], "{}", answer.stdout);
    answer.says("change-stream-delay", "skipped", "no change stream");
    answer.exits(1);
}

#[tokio::test]
async fn the_rights_to_create_the_hints_collection_are_checked_without_creating_it() {
    let scene = Scene::new().await;
    let user = scene.user(&ROLE).await;
    let uri = scene.set.uri_for(&user);
    let hints = format!("{COLLECTION}.hints");
    let check = || scene.check(&uri).flag("--mongodb-watch=hints");
    scene.grant(&hints, &["find", "insert"]).await;
    let answer = check().run().await;
    answer.says(
        "hints",
        "warning",
        "no right to use hints: followers poll instead",
    );
    answer.says("hints", "warning", "insert and convertToCapped on");
    scene.grant(&hints, &["convertToCapped"]).await;
    let answer = check().run().await;
    answer.says("hints", "ok", "the first candidate creates the collection");
    assert_eq!(answer.troubles(), [""; 0], "{}", answer.stdout);
    let database = scene.set.client().database(&scene.database);
    let names = database.list_collection_names().await.unwrap();
    assert!(!names.contains(&hints), "{names:?}");
}

#[tokio::test]
async fn with_more_rights_the_command_shows_the_settings_of_the_set() {
    let scene = Scene::new().await;
    let answer = scene.check(&scene.set.uri()).run().await;
    answer.says("journal", "ok", "storage engine wiredTiger");
    let two_seconds = "electionTimeoutMillis 2s × 1.15 + 0.6s = 2.9s without writes";
    answer.says("election-timeout", "ok", two_seconds);
    answer.says("catch-up", "warning", "catchUpTimeoutMillis = 2000");
    assert_eq!(answer.troubles(), ["catch-up warning"], "{}", answer.stdout);
}

#[tokio::test]
async fn a_missing_or_wrong_login_is_distinguished_from_missing_rights() {
    let scene = Scene::new().await;
    let nobody = scene.check(&scene.set.uri_without_user()).run().await;
    for name in ["find", "insert", "update"] {
        nobody.says(
            name,
            "failed",
            "the server requires a user, and the URI has none",
        );
    }
    assert_eq!(nobody.code, 2);

    let user = scene.user(&ROLE).await;
    let wrong = User::with_password(user.name(), "wr0ng");
    let answer = scene.check(&scene.set.uri_for(&wrong)).run().await;
    answer.keeps_secrets();
    let failed = format!("authentication failed for user {}", user.name());
    answer.says("credentials", "failed", &failed);
    answer.says("credentials", "failed", "check the password");
    answer.says("find", "skipped", "the login was refused");
    answer.says("deployment", "skipped", "the login was refused");
    // The checks of the servers and their certificates still pass.
    assert_eq!(
        answer.troubles(),
        ["credentials failed"],
        "{}",
        answer.stdout
    );
    assert!(
        answer
            .all("server")
            .iter()
            .all(|check| check["result"] == "ok")
    );
    assert_eq!(answer.code, 2);
}

#[tokio::test]
async fn a_collection_that_cannot_store_leases_is_reported_without_a_write() {
    let scene = Scene::new().await;
    let set = ReplicaSet::builder().members(1).start().await;
    let uri = set.uri();
    let database = |name: &str| set.client().database(name);
    let check = async |name: &str| {
        let flag = format!("--mongodb-database={name}");
        scene.check(&uri).flag(&flag).run().await
    };
    let options = |options: Document| {
        let mut create = doc! { "create": "leases" };
        create.extend(options);
        create
    };
    let index = |index: Document| doc! { "createIndexes": "leases", "indexes": [index] };
    for (name, create, says) in [
        (
            "validated",
            options(doc! { "validator": { "owner": { "$exists": true } } }),
            "(DocumentValidationFailure, code 121)",
        ),
        (
            "collated",
            options(doc! { "collation": { "locale": "en", "strength": 2 } }),
            "upper and lower case",
        ),
        (
            "viewed",
            options(doc! { "viewOn": "other", "pipeline": [] }),
            "(CommandNotSupportedOnView, code 166)",
        ),
        (
            "capped",
            options(doc! { "capped": true, "size": 4096 }),
            "capped",
        ),
        (
            "series",
            options(doc! { "timeseries": { "timeField": "ts" } }),
            "the collection is a time series",
        ),
        (
            "indexed",
            doc! { "createIndexes": "leases", "indexes": [
                { "key": { "name": 1 }, "name": "name_1", "unique": true },
            ] },
            "name_1",
        ),
        (
            "expiring",
            index(doc! { "key": { "renewed_at": 1 }, "name": "ttl_1", "expireAfterSeconds": 60 }),
            "a TTL index of the collection deletes documents",
        ),
        (
            "sparse",
            index(doc! { "key": { "x": 1 }, "name": "x_1", "unique": true, "sparse": true }),
            "x_1",
        ),
        (
            "parallel",
            index(doc! { "key": { "holders.claim": 1, "queue.claim": 1 }, "name": "both" }),
            "(CannotIndexParallelArrays, code 171)",
        ),
        (
            "no_lease_is_held",
            options(doc! { "validator": { "holder.identity": { "$exists": false } } }),
            "(DocumentValidationFailure, code 121)",
        ),
        (
            "no_lock_is_held",
            options(doc! { "validator": { "holders.0": { "$exists": false } } }),
            "(DocumentValidationFailure, code 121)",
        ),
        (
            "no_lock_is_waited_for",
            options(doc! { "validator": { "queue.0": { "$exists": false } } }),
            "(DocumentValidationFailure, code 121)",
        ),
        (
            "no_lock_has_ended",
            options(doc! { "validator": { "history.0": { "$exists": false } } }),
            "(DocumentValidationFailure, code 121)",
        ),
    ] {
        let made = database(name).run_command(create).await;
        made.unwrap_or_else(|error| panic!("{name}: {error}"));
        let answer = check(name).await;
        answer.says("collection", "failed", says);
        let leases = database(name).collection::<Document>("leases");
        let stored = leases.count_documents(doc! {}).await.expect("counted");
        assert_eq!(stored, 0, "{name}");
    }
    let answer = check("plain").await;
    answer.says("collection", "ok", "accepts leases and locks");
    let answer = scene.check(&scene.set.uri_for(&scene.user(&ROLE).await));
    let answer = answer.run().await;
    answer.says("collection", "ok", "without the right listIndexes");
}
