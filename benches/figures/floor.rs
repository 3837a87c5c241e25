//! Measures the minimum time of a handoff on a replica set: two consecutive majority writes in one
//! connected client, and the change event of the second write in another client. No election on
//! this set can be faster.

use std::time::Duration;

use leasehold_testbed::ReplicaSet;
use leasehold_testbed::daemon::boottime_ns;
use mongodb::bson::{Bson, Document, doc};
use mongodb::change_stream::ChangeStream;
use mongodb::change_stream::event::ChangeStreamEvent;
use mongodb::options::WriteConcern;
use mongodb::{Client, Collection};

use crate::launch::seconds;

const EVENT_MAX: Duration = Duration::from_secs(60);

pub(crate) struct Floor {
    document: Collection<Document>,
    events: ChangeStream<ChangeStreamEvent<Document>>,
    number: i64,
    /// Durations of the rounds, in seconds.
    pub(crate) rounds: Vec<f64>,
    /// Duration of each round's first write, in seconds.
    pub(crate) writes: Vec<f64>,
}

impl Floor {
    pub(crate) async fn start(set: &ReplicaSet) -> Self {
        let document = collection(set).await;
        let id = Bson::from(mongodb::bson::Uuid::new());
        let created = document.insert_one(doc! { "_id": "floor", "revision": id, "number": 0_i64 });
        // The document already exists if this set's floor was measured before.
        let _ = created.await;
        let matching = doc! { "$match": { "documentKey._id": "floor" } };
        let events = collection(set).await.watch().pipeline([matching]).await;
        let mut floor = Self {
            document,
            events: events.expect("open a change stream"),
            number: 0,
            rounds: Vec::new(),
            writes: Vec::new(),
        };
        // The first round connects to the primary.
        floor.round().await;
        floor.rounds.clear();
        floor.writes.clear();
        floor
    }

    /// Panics if a write fails or its event does not arrive within a minute.
    pub(crate) async fn round(&mut self) {
        self.number += 2;
        let (document, last) = (&self.document, self.number);
        let events = &mut self.events;
        let began_ns = boottime_ns();
        let writes = async {
            write(document, last - 1).await;
            let first_ns = boottime_ns();
            write(document, last).await;
            (first_ns, boottime_ns())
        };
        let event = tokio::time::timeout(EVENT_MAX, seen(events, last));
        let ((first_ns, second_ns), seen_ns) = tokio::join!(writes, event);
        let seen_ns = seen_ns.expect("the change event arrives");
        self.rounds.push(seconds(began_ns, second_ns.max(seen_ns)));
        self.writes.push(seconds(began_ns, first_ns));
    }
}

async fn collection(set: &ReplicaSet) -> Collection<Document> {
    let client = Client::with_uri_str(set.uri()).await;
    let client = client.expect("a valid connection string");
    client.database("leasehold").collection("floor")
}

/// Changes the document with a majority write. Panics if the write fails.
pub(crate) async fn write(document: &Collection<Document>, number: i64) {
    let revision = mongodb::bson::Uuid::new();
    let change = doc! { "$set": { "number": number, "revision": revision } };
    let written = document
        .find_one_and_update(doc! { "_id": "floor" }, change)
        .write_concern(WriteConcern::majority())
        .await;
    written.expect("the set answers");
}

/// Waits for the event of a write. Returns the event's arrival time.
pub(crate) async fn seen(
    events: &mut ChangeStream<ChangeStreamEvent<Document>>,
    number: i64,
) -> u64 {
    loop {
        let event = events.next_if_any().await.expect("the stream continues");
        let at_ns = boottime_ns();
        let updated = event.and_then(|event| event.update_description);
        let found = updated.and_then(|update| update.updated_fields.get_i64("number").ok());
        if found == Some(number) {
            return at_ns;
        }
    }
}
