//! Tries if the collection accepts the documents of leases.

use mongodb::bson::oid::ObjectId;
use mongodb::options::ReadConcern;

use super::StoreProbe;
use crate::store::mongo::connection::SendError;
use crate::store::mongo::{document, outcome, refusals};
use crate::store::{Failure, RetryPolicy};
use leasehold_core::election::{Revision, Token};

impl StoreProbe {
    /// Inserts two leases in a transaction and aborts it: validators, unique indexes, collations,
    /// views and capped collections refuse them there as they refuse a candidate. Nothing is stored,
    /// and nothing of others is changed.
    ///
    /// # Errors
    /// If the collection refuses the documents.
    pub async fn try_documents(&self) -> Result<(), Failure> {
        let tried = self.tried().await;
        tried.map_err(|error| match &error {
            SendError::Driver(error)
                if outcome::code(error) == Some(outcome::DUPLICATE_KEY)
                    && refusals::foreign_index(error).is_none() =>
            {
                Failure::new(
                    "names that differ only in upper and lower case count as one name",
                    "the collection has a collation: use another collection",
                )
                .with_retry(RetryPolicy::Reconfigure)
            }
            _ => self.failure(error),
        })
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
        let mut tried = Ok(());
        for name in [name.to_uppercase(), name] {
            let revision = Revision::from_bytes([0; 16]);
            let lease = document::create(&name, revision, Token::ZERO);
            let inserted = collection.insert_one(lease).session(&mut session).await;
            tried = inserted.map(drop);
            if tried.is_err() {
                break;
            }
        }
        // The server aborts a transaction by itself if this is not answered.
        let _ = session.abort_transaction().await;
        Ok(tried?)
    }
}
