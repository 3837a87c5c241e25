//! Optimistic concurrency without a lock: read a version, do the work, and write only if the
//! version is unchanged. This design is correct only if the write is the sole effect of the work.
//! In the test, as in most services, the work also has other effects.

use mongodb::bson::doc;
use mongodb::error::Result;

use super::{HandMade, Terms, inserted};

pub(crate) struct VersionCheck {
    pub(crate) terms: Terms,
    pub(crate) version: i64,
}

impl HandMade for VersionCheck {
    async fn acquire(&mut self) -> Result<bool> {
        let Terms {
            collection, name, ..
        } = &self.terms;
        inserted(
            collection
                .insert_one(doc! { "_id": name, "version": 0_i64 })
                .await,
        )?;
        let found = collection.find_one(doc! { "_id": name }).await?;
        let version = found.and_then(|found| found.get_i64("version").ok());
        self.version = version.unwrap_or_default();
        Ok(true)
    }

    async fn extend(&self) -> Result<()> {
        Ok(())
    }

    async fn release(&self) -> Result<bool> {
        let unchanged = doc! { "_id": &self.terms.name, "version": self.version };
        let next = doc! { "$inc": { "version": 1_i64 } };
        let written = self.terms.collection.update_one(unchanged, next).await?;
        Ok(written.matched_count == 1)
    }
}
