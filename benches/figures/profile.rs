//! Reads from the server's profiler which commands a primary has received.

use std::collections::BTreeMap;

use leasehold_testbed::ReplicaSet;
use mongodb::bson::{Document, doc};

/// Databases whose commands the profiler records. The profiler does not record the hello commands
/// of the driver's monitors.
const DATABASES: [&str; 2] = ["leasehold", "admin"];

/// Turns the profiler on or off. Before turning the profiler on, clears its records.
pub(crate) async fn record(set: &ReplicaSet, primary: usize, on: bool) {
    let client = direct(set, primary).await;
    for name in DATABASES {
        let database = client.database(name);
        let level = if on { 2 } else { 0 };
        if on {
            let _ = database
                .collection::<Document>("system.profile")
                .drop()
                .await;
            // The default size of 1 MB is too small for a few minutes of commands.
            let create = doc! { "create": "system.profile", "capped": true, "size": 64 << 20 };
            let made = database.run_command(create).await;
            made.unwrap_or_else(|error| panic!("make the profile of {name}: {error}"));
        }
        let set = database.run_command(doc! { "profile": level }).await;
        set.unwrap_or_else(|error| panic!("profile {name}: {error}"));
    }
}

/// Counts the commands of clients with this application name, by command.
pub(crate) async fn commands(client: &mongodb::Client, app_name: &str) -> BTreeMap<String, f64> {
    let mut counts = BTreeMap::new();
    for name in DATABASES {
        let records = client
            .database(name)
            .collection::<Document>("system.profile");
        let mut cursor = records
            .find(doc! { "appName": app_name })
            .await
            .expect("read the profile");
        while cursor.advance().await.expect("read the profile") {
            let record = cursor
                .deserialize_current()
                .expect("a record is a document");
            let command = record
                .get_document("command")
                .ok()
                .and_then(|command| command.keys().next().cloned())
                .unwrap_or_else(|| "unnamed".to_owned());
            *counts.entry(command).or_insert(0.0) += 1.0;
        }
    }
    counts
}

/// Counts the aggregations of all clients on a member. The profiler omits aggregations that open a
/// change stream, because they belong to the oplog's database, but the server's counter includes
/// them.
pub(crate) async fn aggregations(client: &mongodb::Client) -> f64 {
    let admin = client.database("admin");
    let status = admin.run_command(doc! { "serverStatus": 1 }).await;
    let status = status.expect("the server reports its status");
    let total = ["metrics", "commands", "aggregate"]
        .iter()
        .try_fold(&status, |document, key| document.get_document(key))
        .and_then(|counts| counts.get_i64("total"));
    let total = total.expect("the server counts commands");
    f64::from(u32::try_from(total).expect("few aggregations"))
}

/// Connects to this member only.
pub(crate) async fn direct(set: &ReplicaSet, index: usize) -> mongodb::Client {
    let client = mongodb::Client::with_uri_str(set.direct_uri(index)).await;
    client.expect("a valid connection string")
}
