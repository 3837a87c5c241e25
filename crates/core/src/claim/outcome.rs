//! Outcome of a store call.

use crate::election::Found;

/// Outcome of a call, with the document that it found or left.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Outcome<F = Found> {
    /// Acknowledged by a majority, with the resulting document (for a read, with the document
    /// read).
    Applied(F),
    /// The filter did not match (for a create, the document exists).
    Rejected,
    /// Provably never sent.
    Failed,
    /// Every other result, including timeouts and write concern errors. The write may have been
    /// applied, or may be applied later. This outcome never grants or extends authority (I7).
    Unknown,
}
