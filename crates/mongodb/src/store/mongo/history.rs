//! The ends of earlier holders, as the documents of leases and locks keep them for humans.

use mongodb::bson::{Bson, Document};

use super::display::{named, text};
use super::document::{date, token};
use leasehold_core::election::{Identity, Token, WallMillis};

/// A former holder of a lease or lock. Informational; a field that cannot be read is absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastHolder {
    /// The holder's token.
    pub token: Option<Token>,
    /// The holder's identity.
    pub identity: Option<Identity>,
    /// Time at which the holder joined.
    pub acquired_at: WallMillis,
    /// Time of the end.
    pub ended_at: WallMillis,
    /// The reason: for a lease the name of a [`Reason`](leasehold_core::election::Reason), for a
    /// lock `released`, `expired` or `broken`.
    pub reason: Option<String>,
}

/// Returns the history, oldest entry first.
pub(super) fn history(document: &Document) -> Vec<PastHolder> {
    let ends = list(document, "history")
        .iter()
        .filter_map(Bson::as_document);
    ends.map(|end| PastHolder {
        token: token(end).ok(),
        identity: end.get_str("identity").ok().map(named),
        acquired_at: date(end.get("acquired_at")),
        ended_at: date(end.get("ended_at")),
        reason: text(end, "reason"),
    })
    .collect()
}

/// Returns the elements of a list; none if it is not one.
pub(super) fn list<'a>(document: &'a Document, key: &str) -> &'a [Bson] {
    match document.get(key) {
        Some(Bson::Array(elements)) => elements,
        Some(_) | None => &[],
    }
}
