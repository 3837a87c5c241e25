//! Expressions over a lock's document and its entries, the parts of filters and pipelines.

use mongodb::bson::{Bson, Document, doc};

use super::super::document::uuid;
use super::document::{holders, some_entry};
use leasehold_core::election::{Claim, Token};
use leasehold_core::lock::EntryMode;

pub(super) fn has_slots() -> Document {
    doc! { "$gt": ["$slots", 0] }
}

/// The numbers of the slots that are not in the list `taken`.
pub(super) fn free_slots(taken: Bson) -> Document {
    doc! { "$setDifference": [{ "$range": [0, { "$ifNull": ["$slots", 0] }] }, taken] }
}

pub(super) fn is_claim(claim: Claim) -> Bson {
    doc! { "$eq": ["$$entry.claim", uuid(claim.bytes())] }.into()
}

/// True if any holder is not shared.
pub(super) fn held_alone() -> Bson {
    let other = doc! { "$ne": ["$$entry.mode", EntryMode::Shared.as_str()] };
    some_entry(holders(), other.into())
}

pub(super) fn has_token(entry: &str) -> Bson {
    // Null and missing values sort before all numbers.
    doc! { "$gt": [format!("{entry}.token"), null] }.into()
}

/// The highest known token, as an int64 whatever the stored type is.
pub(super) fn highest(seen: Token) -> Bson {
    doc! { "$toLong": { "$max": ["$token", seen.get()] } }.into()
}

/// The token after this one, or null at the end of the range. A grant without a token has no
/// authority.
pub(super) fn next_token(token: Bson) -> Bson {
    let next = doc! { "$add": [token.clone(), 1_i64] };
    doc! { "$cond": [{ "$lt": [token, Token::MAX.get()] }, next, null] }.into()
}

pub(super) fn is_empty(list: Bson) -> Bson {
    doc! { "$eq": [{ "$size": list }, 0] }.into()
}

pub(super) fn below(list: Bson, most: i64) -> Bson {
    doc! { "$lt": [{ "$size": list }, most] }.into()
}

pub(super) fn not(condition: Bson) -> Bson {
    doc! { "$not": [condition] }.into()
}

pub(super) fn any(conditions: impl IntoIterator<Item = Bson>) -> Bson {
    doc! { "$or": conditions.into_iter().collect::<Vec<_>>() }.into()
}

pub(super) fn count(number: usize) -> i64 {
    i64::try_from(number).expect("a bound of the protocol")
}
