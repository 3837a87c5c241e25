//! Fenced writes: a document rejects a former holder's writes after a newer holder has written it.
//!
//! The document stores the token of its newest writer, and a write with an older token does not
//! match it. Fence only with leases and exclusive locks: tokens of readers and slots are not
//! ordered.

use mongodb::Collection;
use mongodb::bson::{Bson, Document, doc};
use mongodb::options::{Acknowledgment, ReadConcern, UpdateModifications, WriteConcern};

use crate::store::mongo::{primary, token};
use leasehold_core::election::{ResourceName, Token};

/// Field with the token of the document's newest writer.
pub const FENCE: &str = "fence.token";
/// Field with the name of the lease or lock. Tokens of different names are not comparable.
pub const FENCE_NAME: &str = "fence.name";

/// A token, and the name of its lease or lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    name: ResourceName,
    token: Token,
}

impl Fence {
    /// Creates a fence from the `token` of the lease or lock `name`.
    pub fn new(name: ResourceName, token: Token) -> Self {
        Self { name, token }
    }
}

/// Reason why a fenced write was not applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FencedError {
    /// A newer holder has written the document, so the caller no longer holds the lease or lock; or
    /// the stored fence is not a token.
    #[error("fenced write: {}", .newest.map_or_else(
        || format!("{FENCE} of the document is not a token"),
        |newest| format!("a newer holder (token {newest}) has written the document"),
    ))]
    Refused {
        /// The token of the newer holder; `None` if the stored fence is not a token.
        newest: Option<Token>,
    },
    /// A different lease or lock fences the document.
    #[error("fenced write: the document is fenced by {name:?}; use a single lock per document")]
    OtherName {
        /// The stored name.
        name: String,
    },
    /// No document matched the filter.
    #[error("fenced write: no document matches")]
    NoDocument,
    /// The lock is not held at this instant, so nothing was sent.
    #[error("fenced write: the lock is not held")]
    NotHeld,
    /// The lock is shared or has slots, so its tokens cannot fence.
    #[error("fenced write: the lock is not exclusive")]
    NotExclusive,
    /// The driver failed, but the write may have been applied.
    #[error("fenced write: the driver failed")]
    Driver(#[from] mongodb::error::Error),
}

/// Makes a filter reject documents with a newer token or with another fence name.
pub fn filter(filter: Document, fence: &Fence) -> Document {
    let token = doc! { "$or": [
        { FENCE: { "$exists": false } },
        { FENCE: { "$lte": fence.token.get() } },
    ] };
    // A document without a name was fenced by an earlier version.
    let name = doc! { FENCE_NAME: { "$in": [fence.name.as_str(), null] } };
    doc! { "$and": [filter, token, name] }
}

/// Extends an update, which may be operators or a pipeline, so that it also stores the fence.
pub fn update(update: impl Into<UpdateModifications>, fence: &Fence) -> UpdateModifications {
    let fields = doc! { FENCE: fence.token.get(), FENCE_NAME: fence.name.as_str() };
    match update.into() {
        UpdateModifications::Document(mut operators) => {
            match operators.get_mut("$set") {
                Some(Bson::Document(set)) => set.extend(fields),
                Some(_) | None => drop(operators.insert("$set", fields)),
            }
            UpdateModifications::Document(operators)
        }
        UpdateModifications::Pipeline(mut stages) => {
            stages.push(doc! { "$set": fields });
            UpdateModifications::Pipeline(stages)
        }
        other => other,
    }
}

/// Updates one document, unless a holder with a newer token has written it. Stores the fence in the
/// document. The write concern is majority, because a fence that is rolled back protects nothing.
pub async fn update_one<T: Send + Sync>(
    collection: &Collection<T>,
    matching: Document,
    change: impl Into<UpdateModifications>,
    fence: &Fence,
) -> Result<(), FencedError> {
    let majority = WriteConcern::builder()
        .w(Acknowledgment::Majority)
        .journal(true)
        .build();
    let updated = collection
        .update_one(filter(matching.clone(), fence), update(change, fence))
        .write_concern(majority)
        .await?;
    if updated.matched_count > 0 {
        return Ok(());
    }
    let found = collection
        .clone_with_type::<Document>()
        .find_one(matching)
        .projection(doc! { "_id": 0, FENCE: 1, FENCE_NAME: 1 })
        .read_concern(ReadConcern::majority())
        .selection_criteria(primary())
        .await?;
    Err(refusal(found.as_ref(), fence))
}

/// Returns why a write matched nothing, from the fields of the fence that a later read found.
fn refusal(found: Option<&Document>, fence: &Fence) -> FencedError {
    let Some(found) = found else {
        return FencedError::NoDocument;
    };
    let stored = found.get_document("fence").ok();
    if let Some(name) = stored.and_then(|stored| stored.get_str("name").ok())
        && name != fence.name.as_str()
    {
        let name = name.to_owned();
        return FencedError::OtherName { name };
    }
    // In an array, the filter finds a token too.
    let has_token = |fence: &Bson| {
        let fields = fence.as_document();
        fields.is_none_or(|fields| fields.contains_key("token"))
    };
    let is_fenced = found.get("fence").is_some_and(has_token);
    match stored.and_then(|stored| token(stored).ok()) {
        // The document began to match the filter only after the write was sent.
        None if !is_fenced => FencedError::NoDocument,
        Some(newest) if newest <= fence.token => FencedError::NoDocument,
        newest => FencedError::Refused { newest },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_stored_fence_refuses_a_write() {
        let fence = Fence::new(
            ResourceName::new("orders").expect("legal"),
            Token::new(7).expect("not negative"),
        );
        let refusal = |found: Document| refusal(Some(&found), &fence);
        // These documents match the filter, so they began to match after the write was sent.
        for found in [
            doc! {},
            doc! { "fence": {} },
            doc! { "fence": { "name": "orders" } },
            doc! { "fence": { "name": "orders", "token": 7_i64 } },
        ] {
            let shown = format!("{found}");
            assert!(matches!(refusal(found), FencedError::NoDocument), "{shown}");
        }
        assert!(matches!(
            super::refusal(None, &fence),
            FencedError::NoDocument
        ));
        for found in [
            doc! { "fence": { "name": "orders", "token": "x" } },
            doc! { "fence": [{ "token": 8_i64 }] },
        ] {
            let shown = format!("{found}");
            assert!(
                matches!(refusal(found), FencedError::Refused { newest: None }),
                "{shown}"
            );
        }
        let newer = doc! { "fence": { "name": "orders", "token": 8_i64 } };
        assert!(matches!(
            refusal(newer),
            FencedError::Refused { newest: Some(newest) } if newest.get() == 8
        ));
        let other = doc! { "fence": { "name": "invoices" } };
        assert!(matches!(
            refusal(other),
            FencedError::OtherName { name } if name == "invoices"
        ));
    }

    #[test]
    fn the_fence_joins_whatever_the_update_is() {
        let name = ResourceName::new("orders").expect("legal");
        let fence = Fence::new(name, Token::new(7).expect("not negative"));
        let operators = |operators: Document| match update(operators, &fence) {
            UpdateModifications::Document(update) => update,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            operators(doc! { "$inc": { "n": 1 } }),
            doc! { "$inc": { "n": 1 }, "$set": { FENCE: 7_i64, FENCE_NAME: "orders" } }
        );
        assert_eq!(
            operators(doc! { "$set": { "a": 1 } }),
            doc! { "$set": { "a": 1, FENCE: 7_i64, FENCE_NAME: "orders" } }
        );
        let stages = vec![doc! { "$set": { "a": "$b" } }];
        match update(stages, &fence) {
            UpdateModifications::Pipeline(stages) => {
                let last = doc! { "$set": { FENCE: 7_i64, FENCE_NAME: "orders" } };
                assert_eq!(stages.last(), Some(&last));
            }
            other => panic!("{other:?}"),
        }
    }
}
