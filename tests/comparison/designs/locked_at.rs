//! The lock's document is created once and never removed. The lock counts as free once its timeout
//! has passed since `lockedAt`. The holder refreshes `lockedAt`.

use mongodb::bson::{DateTime, doc};
use mongodb::error::Result;

use super::{HandMade, Terms, inserted};

pub(crate) struct LockedAt(pub(crate) Terms);

impl HandMade for LockedAt {
    async fn acquire(&mut self) -> Result<bool> {
        let Terms {
            collection,
            name,
            life,
            ..
        } = &self.0;
        let created = doc! { "_id": name, "locked": false, "lockedAt": null };
        inserted(collection.insert_one(created).await)?;
        let now = std::time::SystemTime::now();
        let timed_out = DateTime::from_system_time(now - *life);
        let free = doc! { "_id": name, "$or": [
            { "locked": false }, { "lockedAt": { "$lt": timed_out } },
        ] };
        let take = doc! { "$set": { "locked": true, "lockedAt": DateTime::from_system_time(now) } };
        Ok(collection.update_one(free, take).await?.matched_count == 1)
    }

    async fn extend(&self) -> Result<()> {
        let locked = doc! { "_id": &self.0.name, "locked": true };
        let later = doc! { "$set": { "lockedAt": DateTime::now() } };
        self.0.collection.update_one(locked, later).await?;
        Ok(())
    }

    async fn release(&self) -> Result<bool> {
        let free = doc! { "$set": { "locked": false, "lockedAt": null } };
        let locked = doc! { "_id": &self.0.name, "locked": true };
        let freed = self.0.collection.update_one(locked, free).await?;
        Ok(freed.matched_count == 1)
    }
}
