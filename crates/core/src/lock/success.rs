//! Recorded successes, for work that must not be repeated too soon.
//!
//! A success is recorded by the write that ends the claim, so the next holder sees it in the reply
//! that makes it a holder. Its age is the only decision here that depends on a wall clock: the
//! store's, which stamps both the success and the reply. No authority depends on it.

use std::fmt;
use std::time::Duration;

use super::document::LockDocument;
use crate::election::{NameError, WallMillis};

/// Maximum number of keys whose last success is kept. The oldest success makes room.
pub const SUCCESSES_MAX: usize = 128;
/// Maximum length of a key in bytes.
const KEY_LENGTH_MAX: usize = 128;

/// Name of a piece of work among those that are done under one lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "String", into = "String"))]
pub struct WorkKey(String);

impl WorkKey {
    /// Checks a key.
    ///
    /// # Errors
    /// [`NameError`] if it is empty, longer than 128 bytes, or has control characters.
    pub fn new(key: impl Into<String>) -> Result<Self, NameError> {
        let key = key.into();
        let legal = (1..=KEY_LENGTH_MAX).contains(&key.len());
        if legal && !key.chars().any(char::is_control) {
            Ok(Self(key))
        } else {
            let expected = "1 to 128 bytes without control characters";
            Err(NameError {
                value: key,
                expected,
            })
        }
    }

    /// Returns the key.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The key of a lock that does one piece of work only.
impl Default for WorkKey {
    fn default() -> Self {
        Self("default".to_owned())
    }
}

impl fmt::Display for WorkKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The last success of a piece of work.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Success {
    /// Key of the work.
    pub key: WorkKey,
    /// Time at which the store recorded it, by the clock of the store.
    pub at: WallMillis,
}

/// Work that is skipped if it succeeded recently.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct OncePer {
    /// Time within which a success counts.
    pub period: Duration,
    /// Key of the work.
    pub key: WorkKey,
}

impl OncePer {
    /// Returns how long ago the work succeeded, by the clock of the store, if that is less than the
    /// period.
    pub(super) fn done_ago(&self, lock: &LockDocument) -> Option<Duration> {
        let mut successes = lock.successes.iter();
        let success = successes.find(|success| success.key == self.key)?;
        if lock.store_now == WallMillis::default() {
            // Unknown: a store that does not show its clock.
            return None;
        }
        let ago = lock.store_now.0.saturating_sub(success.at.0);
        // The clock of the store may have been set back since. A success that it dates in the future
        // counts only within one period, because its true age is not known.
        if Duration::from_millis(ago.unsigned_abs()) >= self.period {
            return None;
        }
        Some(Duration::from_millis(u64::try_from(ago).unwrap_or(0)))
    }
}
