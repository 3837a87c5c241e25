//! Reads and changes the lease document by its field names, like an operator, a script or a
//! restored backup, without the daemon's code.

use std::time::Duration;

use mongodb::bson::{Bson, Document, RawDocumentBuf, Uuid, doc};
use mongodb::{Client, Collection};

/// A lease in a collection.
#[derive(Debug, Clone)]
pub struct StoredLease {
    documents: Collection<Document>,
    raw: Collection<RawDocumentBuf>,
    name: String,
}

impl StoredLease {
    /// Returns a handle on the lease `name`.
    pub fn new(client: &Client, database: &str, collection: &str, name: &str) -> Self {
        let database = client.database(database);
        Self {
            documents: database.collection(collection),
            raw: database.collection(collection),
            name: name.to_owned(),
        }
    }

    /// Returns the document, if it exists.
    pub async fn try_get(&self) -> Option<Document> {
        let found = self.documents.find_one(self.filter()).await;
        found.unwrap_or_else(|error| panic!("read the lease document: {error}"))
    }

    /// Returns the document.
    ///
    /// # Panics
    /// If the document does not exist.
    pub async fn get(&self) -> Document {
        self.try_get().await.expect("the lease document exists")
    }

    /// Returns the raw bytes of the document, to detect any change.
    pub async fn bytes(&self) -> Vec<u8> {
        let found = self.raw.find_one(self.filter()).await;
        let found = found.unwrap_or_else(|error| panic!("read the lease document: {error}"));
        found.expect("the document exists").into_bytes()
    }

    /// Returns the token.
    pub async fn token(&self) -> i64 {
        let document = self.get().await;
        document.get_i64("token").expect("token is an int64")
    }

    /// Returns the holder's identity in the document.
    pub async fn holder(&self) -> Option<String> {
        let document = self.try_get().await?;
        let holder = document.get_document("holder").ok()?;
        holder.get_str("identity").ok().map(str::to_owned)
    }

    /// Returns the claim in the document.
    pub async fn claim(&self) -> Option<Bson> {
        let document = self.try_get().await?;
        document.get_document("holder").ok()?.get("claim").cloned()
    }

    /// Returns the history, oldest entry first.
    pub async fn history(&self) -> Vec<Document> {
        let document = self.get().await;
        let entries = document.get_array("history").expect("history is an array");
        entries
            .iter()
            .filter_map(Bson::as_document)
            .cloned()
            .collect()
    }

    /// Returns the time between the end of the previous leadership and the current holder's
    /// acquisition, by MongoDB's clock.
    ///
    /// # Panics
    /// If no leadership has ended, or the lease is not held.
    pub async fn gap(&self) -> Duration {
        let document = self.get().await;
        let last = document
            .get_array("history")
            .ok()
            .and_then(|all| all.last());
        let last = last.and_then(Bson::as_document).expect("a past leadership");
        let ended = last.get_datetime("ended_at").expect("the end has a time");
        let holder = document.get_document("holder").expect("the lease is held");
        let acquired = holder.get_datetime("acquired_at").expect("a time");
        let gap = acquired.timestamp_millis() - ended.timestamp_millis();
        Duration::from_millis(
            gap.try_into()
                .expect("the previous leadership ended before the acquisition"),
        )
    }

    /// Returns the reasons in the history, oldest first.
    pub async fn reasons(&self) -> Vec<String> {
        let history = self.history().await;
        let reason = |entry: &Document| entry.get_str("reason").expect("a reason").to_owned();
        history.iter().map(reason).collect()
    }

    /// Sets fields like an operator's command, without changing the revision.
    pub async fn set(&self, fields: Document) {
        let changed = self
            .documents
            .update_one(self.filter(), doc! { "$set": fields })
            .await;
        let changed = changed.unwrap_or_else(|error| panic!("change the document: {error}"));
        assert_eq!(changed.matched_count, 1, "the lease document exists");
    }

    /// Renews like the holder of `claim`, with a new random revision. Returns false if another
    /// claim holds the lease.
    pub async fn renew_as(&self, claim: &Bson) -> bool {
        let filter = doc! { "_id": &self.name, "holder.claim": claim };
        let update = doc! { "$set": { "revision": Uuid::new() } };
        let renewed = self.documents.update_one(filter, update).await;
        renewed
            .unwrap_or_else(|error| panic!("renew: {error}"))
            .matched_count
            == 1
    }

    /// Replaces the document, or inserts it if it does not exist.
    pub async fn replace(&self, document: &Document) {
        let replaced = self
            .documents
            .replace_one(self.filter(), document)
            .upsert(true)
            .await;
        replaced.unwrap_or_else(|error| panic!("replace the document: {error}"));
    }

    /// Deletes the document.
    pub async fn delete(&self) {
        let deleted = self.documents.delete_one(self.filter()).await;
        deleted.unwrap_or_else(|error| panic!("delete the document: {error}"));
    }

    /// Drops the whole collection.
    pub async fn drop_collection(&self) {
        let dropped = self.documents.drop().await;
        dropped.unwrap_or_else(|error| panic!("drop the collection: {error}"));
    }

    fn filter(&self) -> Document {
        doc! { "_id": &self.name }
    }
}
