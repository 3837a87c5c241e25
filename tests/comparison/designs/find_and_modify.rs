//! findAndModify with upsert. The filter matches a lock that has expired or belongs to the caller,
//! so an owner may enter twice. If another owner holds the lock, the upsert fails with a duplicate
//! key, and the caller polls.

use mongodb::bson::{DateTime, doc};
use mongodb::error::Result;

use super::{HandMade, Terms, from_now, inserted};

pub(crate) struct FindAndModify(pub(crate) Terms);

impl HandMade for FindAndModify {
    async fn acquire(&mut self) -> Result<bool> {
        let Terms {
            collection,
            name,
            owner,
            life,
        } = &self.0;
        let free_or_mine = doc! { "_id": name, "$or": [
            { "expireAt": { "$lt": DateTime::now() } }, { "owner": owner },
        ] };
        let take = doc! { "$set": { "owner": owner, "expireAt": from_now(*life) } };
        let taken = collection.find_one_and_update(free_or_mine, take);
        inserted(taken.upsert(true).await)
    }

    async fn extend(&self) -> Result<()> {
        self.0.postpone_mine().await
    }

    async fn release(&self) -> Result<bool> {
        self.0.delete_mine().await
    }
}
