//! A lock without an expiry. The lock stays taken until its owner releases it. A contender gives up
//! after a time limit.

use mongodb::bson::doc;
use mongodb::error::Result;

use super::{HandMade, Terms, inserted};

pub(crate) struct Pessimistic(pub(crate) Terms);

impl HandMade for Pessimistic {
    async fn acquire(&mut self) -> Result<bool> {
        let lock = doc! { "_id": &self.0.name, "owner": &self.0.owner };
        inserted(self.0.collection.insert_one(lock).await)
    }

    async fn extend(&self) -> Result<()> {
        Ok(())
    }

    async fn release(&self) -> Result<bool> {
        let mine = doc! { "_id": &self.0.name, "owner": &self.0.owner };
        Ok(self.0.collection.delete_one(mine).await?.deleted_count == 1)
    }
}
