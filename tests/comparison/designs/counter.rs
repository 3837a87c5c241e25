//! Counts holders, up to a limit. Each acquisition and each extension postpones the expiry of the
//! whole document. A client that finds an expired document deletes the document.

use mongodb::bson::{DateTime, doc};
use mongodb::error::Result;

use super::{HandMade, Terms, from_now, inserted};

pub(crate) struct Counter {
    pub(crate) terms: Terms,
    pub(crate) slots: i32,
}

impl HandMade for Counter {
    async fn acquire(&mut self) -> Result<bool> {
        let Terms {
            collection,
            name,
            life,
            ..
        } = &self.terms;
        let expired = doc! { "_id": name, "expireAt": { "$lt": DateTime::now() } };
        collection.delete_one(expired).await?;
        let room = doc! { "_id": name, "count": { "$lt": self.slots } };
        let enter = doc! { "$inc": { "count": 1 }, "$max": { "expireAt": from_now(*life) } };
        inserted(collection.update_one(room, enter).upsert(true).await)
    }

    async fn extend(&self) -> Result<()> {
        let later = doc! { "$max": { "expireAt": from_now(self.terms.life) } };
        let lock = doc! { "_id": &self.terms.name };
        self.terms.collection.update_one(lock, later).await?;
        Ok(())
    }

    async fn release(&self) -> Result<bool> {
        let Terms {
            collection, name, ..
        } = &self.terms;
        let held = doc! { "_id": name, "count": { "$gt": 0 } };
        let left = collection
            .update_one(held, doc! { "$inc": { "count": -1 } })
            .await?;
        collection
            .delete_one(doc! { "_id": name, "count": { "$lte": 0 } })
            .await?;
        Ok(left.matched_count == 1)
    }
}
