//! Checks that the collection accepts the documents of leases and locks, and keeps them.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, doc};
use mongodb::options::ReadConcern;
use mongodb::{ClientSession, Collection};

use super::StoreProbe;
use super::description::text;
use crate::store::Failure;
use crate::store::mongo::connection::SendError;
use crate::store::mongo::display::list;
use crate::store::mongo::{document, lock, now, outcome, primary, refusals};
use leasehold_core::election::{
    Acquisition, Claim, Declared, Identity, Operation, Revision, Session, Token,
};

/// Error code if the collection does not exist. The first candidate creates the collection.
const NAMESPACE_NOT_FOUND: i32 = 26;
const DURATION: Declared = Declared { millis: 24_000 };

impl StoreProbe {
    /// Writes leases and a lock in a transaction and aborts it. Fails if the collection would
    /// refuse a candidate's writes (validator, unique index, collation, view, capped).
    pub async fn try_documents(&self) -> Result<(), Failure> {
        let tried = self.tried().await;
        tried.map_err(|error| match &error {
            SendError::Driver(error)
                if outcome::code(error) == Some(outcome::DUPLICATE_KEY)
                    && refusals::foreign_index(error).is_none() =>
            {
                Failure::lasting(
                    "names that differ only in upper and lower case count as one name",
                    "the collection has a collation: use another collection",
                )
            }
            _ => self.failure(error),
        })
    }

    /// Fails if an index deletes documents or makes leases conflict. Needs the right `listIndexes`.
    pub async fn indexes(&self) -> Result<(), Failure> {
        let collection = self.collection().await?;
        let database = &self.deployment.options.database;
        let database = collection.client().database(database);
        let command = doc! { "listIndexes": collection.name() };
        let reply = database.run_command(command).selection_criteria(primary());
        let reply = match reply.await {
            Ok(reply) => reply,
            Err(error) if outcome::code(&error) == Some(NAMESPACE_NOT_FOUND) => {
                return Ok(());
            }
            Err(error) => return Err(self.described(&error)),
        };
        // A collection has at most 64 indexes, which fit into the first batch.
        let cursor = reply.get_document("cursor").cloned().unwrap_or_default();
        let indexes = list(&cursor, "firstBatch")
            .iter()
            .filter_map(Bson::as_document);
        indexes.filter_map(harm).next().map_or(Ok(()), Err)
    }

    async fn tried(&self) -> Result<(), SendError> {
        let collection = self.deployment.collection().await?;
        let mut session = collection.client().start_session().await?;
        session
            .start_transaction()
            .read_concern(ReadConcern::majority())
            .write_concern(self.deployment.write_concern())
            .await?;
        let name = format!("leasehold check {}", ObjectId::new().to_hex());
        let identity = &self.deployment.options.identity;
        let tried = write_all(&collection, &mut session, &name, identity).await;
        // If the abort fails, the server aborts the transaction by itself.
        let _ = session.abort_transaction().await;
        Ok(tried?)
    }
}

async fn write_all(
    collection: &Collection<Document>,
    session: &mut ClientSession,
    name: &str,
    identity: &Identity,
) -> Result<(), mongodb::error::Error> {
    let now = now();
    let expected = Revision::from_bytes([0; 16]);
    for (number, name) in (1..).zip([name.to_uppercase(), name.to_owned()]) {
        let lease = document::create(&name, expected, Token::ZERO);
        collection.insert_one(lease).session(&mut *session).await?;
        let acquire = Operation::Acquire(Acquisition {
            claim: Claim::from_bytes([number; 16]),
            revision: Revision::from_bytes([number; 16]),
            token: Token::new(1).unwrap_or(Token::ZERO),
            expected,
            session: Session::from_bytes([number; 16]),
            lease_duration: DURATION,
            renew_interval: None,
        });
        if let Some((filter, update)) = document::write(&name, &acquire, identity, None, now) {
            let acquired = collection.update_one(filter, update);
            acquired.session(&mut *session).await?;
        }
    }
    let (lock, contention) = lock::contention(&format!("{name} lock"), identity, now);
    collection.insert_one(lock).session(&mut *session).await?;
    for (filter, update) in contention {
        let written = collection.update_one(filter, update);
        written.session(&mut *session).await?;
    }
    Ok(())
}

fn harm(index: &Document) -> Option<Failure> {
    let name = refusals::shown_index(&text(index, "name"));
    let is_unique = index.get_bool("unique").unwrap_or(false);
    let key = index.get_document("key");
    let has_id = key.is_ok_and(|key| key.contains_key("_id"));
    let (kind, detail) = if index.contains_key("expireAfterSeconds") {
        let why = "the token of a deleted lease or lock starts again at 1";
        (
            "a TTL index of the collection deletes documents",
            format!("drop the index {name}: {why}"),
        )
    } else if is_unique && !has_id {
        (
            "a unique index of the collection can refuse documents",
            format!("drop the index {name}, which is not leasehold's, or use another collection"),
        )
    } else {
        return None;
    };
    Some(Failure::lasting(kind, detail))
}
