//! Goal: listing a thousand leases takes one query, not one query per document.

use leasehold_testbed::Stage;
use mongodb::bson::{Document, doc};

use crate::command::{leasehold, shared_stage};

const LEASES: usize = 1_000;

async fn profiled(stage: &Stage) -> Vec<Document> {
    use futures_util::TryStreamExt;
    let database = stage.set().client().database(stage.database());
    let namespace = format!("{}.{}", stage.database(), stage.collection());
    let profile = database.collection::<Document>("system.profile");
    let found = profile.find(doc! { "ns": namespace, "op": { "$in": ["query", "command"] } });
    found
        .await
        .expect("the profile is read")
        .try_collect()
        .await
        .expect("the profile is read")
}

#[tokio::test]
async fn a_thousand_leases_cost_one_read() {
    let stage = shared_stage().await;
    let database = stage.set().client().database(stage.database());
    let collection = database.collection(stage.collection());
    leasehold(
        &stage,
        &["repair", "lease-0", "--token-at-least", "1", "--create"],
    )
    .await
    .expect(0, &[]);
    let lease: Document = collection
        .find_one(doc! {})
        .await
        .expect("read")
        .expect("there");
    let leases = (1..LEASES).map(|number| {
        let mut lease = lease.clone();
        lease.insert("_id", format!("lease-{number}"));
        lease
    });
    collection.insert_many(leases).await.expect("inserted");
    database
        .run_command(doc! { "profile": 2 })
        .await
        .expect("profiled");
    let listed = leasehold(&stage, &["leases", "--observe", "0s", "-o", "json"])
        .await
        .expect(0, &[])
        .json();
    database
        .run_command(doc! { "profile": 0 })
        .await
        .expect("not profiled");
    assert_eq!(listed.as_array().map(Vec::len), Some(LEASES));
    let commands = profiled(&stage).await;
    // Ignore the query with an empty `_id`: it matches no document and only determines where a
    // change stream starts.
    let is_find = |command: &&Document| {
        command.get_document("command").is_ok_and(|command| {
            let filter = command.get_document("filter");
            let none = filter.and_then(|filter| filter.get_str("_id"));
            let none = none.is_ok_and(str::is_empty);
            command.contains_key("find") && !none
        })
    };
    assert_eq!(commands.iter().filter(is_find).count(), 1, "{commands:?}");
}
