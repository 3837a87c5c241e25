use std::fmt;

/// Reason why a document is not the expected lease or lock of this schema. A foreign document must
/// not be changed (I11).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ForeignDocument {
    /// The document is a lease with this name, not a lock.
    Lease(String),
    /// The document is a lock with this name, not a lease.
    Lock(String),
    /// The document is damaged, newer than this version, or another program's. Contains the
    /// details.
    Unreadable(String),
}

impl ForeignDocument {
    /// Returns true if the document is a lock instead of a lease, or a lease instead of a lock.
    pub fn is_of_other_kind(&self) -> bool {
        matches!(self, Self::Lease(_) | Self::Lock(_))
    }
}

impl fmt::Display for ForeignDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lease(name) => write!(f, "{name} is a lease"),
            Self::Lock(name) => write!(f, "{name} is a lock"),
            Self::Unreadable(why) => f.write_str(why),
        }
    }
}

impl<T: Into<String>> From<T> for ForeignDocument {
    fn from(why: T) -> Self {
        Self::Unreadable(why.into())
    }
}
