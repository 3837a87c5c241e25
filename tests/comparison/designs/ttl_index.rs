//! The lock is held while its document exists. The owner extends the document's expiry while the
//! work continues. A TTL index removes an expired document.

use mongodb::IndexModel;
use mongodb::bson::doc;
use mongodb::error::Result;
use mongodb::options::IndexOptions;
use std::time::Duration;

use super::{HandMade, Terms, from_now, inserted};

pub(crate) struct TtlIndex(pub(crate) Terms);

impl HandMade for TtlIndex {
    async fn acquire(&mut self) -> Result<bool> {
        let Terms {
            collection,
            name,
            owner,
            life,
        } = &self.0;
        let options = IndexOptions::builder().expire_after(Duration::ZERO).build();
        let index = IndexModel::builder().keys(doc! { "expireAt": 1 });
        collection
            .create_index(index.options(options).build())
            .await?;
        let lock = doc! { "_id": name, "owner": owner, "expireAt": from_now(*life) };
        inserted(collection.insert_one(lock).await)
    }

    async fn extend(&self) -> Result<()> {
        self.0.postpone_mine().await
    }

    async fn release(&self) -> Result<bool> {
        self.0.delete_mine().await
    }
}
