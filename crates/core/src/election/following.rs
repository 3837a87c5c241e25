//! How a candidate learns of changes: by a change stream, by hints, or not at all.
//!
//! An event or a hint is never authority. It makes a candidate read, or shows it a document on which
//! it may try a compare-and-set.

use super::phase::Phase;

/// The open source of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Following {
    /// None: the candidate polls.
    Nothing,
    /// A change stream, which reports every change of the document.
    Stream,
    /// A change stream that may report a change seconds later. An event only makes the candidate
    /// read, and renewals are read shortly after each is expected.
    LateStream(Phase),
    /// Hints of other candidates and of operators, which report no renewals. Renewals are read
    /// shortly after each is expected.
    Hints(Phase),
}

impl Following {
    pub(super) fn is_open(self) -> bool {
        self != Self::Nothing
    }

    /// Returns the estimate of the holder's renewals, if they are read and not reported.
    pub(super) fn phase(&mut self) -> Option<&mut Phase> {
        match self {
            Self::LateStream(phase) | Self::Hints(phase) => Some(phase),
            Self::Nothing | Self::Stream => None,
        }
    }

    /// Returns true if renewals are read and not reported.
    pub(super) fn reads_renewals(mut self) -> bool {
        self.phase().is_some()
    }
}
