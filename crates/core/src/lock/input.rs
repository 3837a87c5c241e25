use std::time::Duration;

use super::{
    EntryMode, Grant, Hint, LockDocument, LockOutcome, MIN_HOLD_MAX, Observations, OncePer,
    SLOTS_MAX,
};
use crate::election::{BootTime, CallId, Identity, Timings, Token, WallMillis};

/// Number of slots of a semaphore, 1 to [`SLOTS_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "u32", into = "u32"))]
pub struct Slots(u32);

impl Slots {
    /// Checks a number of slots. Returns `None` if it is 0 or above [`SLOTS_MAX`].
    pub const fn new(slots: u32) -> Option<Self> {
        match slots {
            1..=SLOTS_MAX => Some(Self(slots)),
            _ => None,
        }
    }

    /// Returns the number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// Minimum time that an entry stays among the holders; at most [`MIN_HOLD_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "Duration", into = "Duration"))]
pub struct MinHold(Duration);

impl MinHold {
    /// No minimum hold. The entry is removed when the work ends.
    pub const NONE: Self = Self(Duration::ZERO);

    /// Checks a duration. Returns `None` if the duration exceeds [`MIN_HOLD_MAX`].
    pub fn new(duration: Duration) -> Option<Self> {
        (duration <= MIN_HOLD_MAX).then_some(Self(duration))
    }

    /// Returns the duration.
    pub const fn get(self) -> Duration {
        self.0
    }
}

/// Mode in which a contender wants to hold the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum LockMode {
    /// Excludes every other holder.
    Exclusive,
    /// Shared with other readers.
    Shared,
    /// One of this many slots. All contenders for a lock must use the same number.
    Slot(Slots),
}

impl LockMode {
    /// Returns the mode of the contender's entry.
    pub const fn entry_mode(self) -> EntryMode {
        match self {
            Self::Exclusive => EntryMode::Exclusive,
            Self::Shared => EntryMode::Shared,
            Self::Slot(_) => EntryMode::Slot,
        }
    }

    /// Returns the `slots` value that the document must have.
    pub const fn slots(self) -> u32 {
        match self {
            Self::Exclusive | Self::Shared => 0,
            Self::Slot(slots) => slots.get(),
        }
    }
}

/// A loss of acknowledged writes that a contender has noticed, for example after a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct WentBack {
    /// Token of the document since the loss; `None` if the document was missing.
    pub found: Option<Token>,
    /// Earliest instant to join. By then, the holders that the document has lost have no authority.
    pub joins_from: BootTime,
}

/// Identity and settings of a contender.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Options {
    /// Name of the contender; informational.
    pub identity: Identity,
    /// Requested mode.
    #[cfg_attr(feature = "serde", serde(rename = "want"))]
    pub mode: LockMode,
    /// Minimum hold, even if the work ends or the process exits earlier. Costs one more write.
    #[cfg_attr(feature = "serde", serde(rename = "at_least"))]
    pub min_hold: MinHold,
    /// Durations used by the contender.
    pub timings: Timings,
    /// Skip the work if it succeeded recently, and record its success. For exclusive locks only.
    pub once_per: Option<OncePer>,
    /// Acquire without waiting for others, or end as [`End::Busy`](super::End::Busy).
    pub non_blocking: bool,
    /// Open the change stream before joining. This saves a read if the lock is usually held.
    pub watch_first: bool,
    /// Highest token of this lock that earlier contenders have seen.
    pub token_remembered: Token,
    /// The last loss that earlier contenders noticed in this boot, unless the document's token has
    /// reached `token_remembered` since then.
    #[cfg_attr(feature = "serde", serde(default))]
    pub went_back: Option<WentBack>,
    /// Observations that earlier contenders made in this boot, to evict expired entries sooner.
    pub observations: Observations,
}

impl Options {
    /// Returns false if the lock has slots but the grant, by an older version, names none.
    pub(super) fn is_served_by(&self, slot: Option<u32>) -> bool {
        self.mode.slots() == 0 || slot.is_some()
    }

    /// Returns true if the work may begin on a grant alone, which requires that neither a minimum
    /// hold nor `once_per` is set.
    pub(super) fn may_hold_by(&self, grant: &Grant) -> bool {
        let shown = self.once_per.is_none() || planted!(GrantWithoutSuccesses);
        shown && self.min_hold == MinHold::NONE && self.is_served_by(grant.slot)
    }

    pub(super) fn done_ago(&self, lock: &LockDocument) -> Option<Duration> {
        let once_per = self.once_per.as_ref()?;
        let mut successes = lock.successes.iter();
        let success = successes.find(|success| success.key == once_per.key)?;
        let known = lock.store_now != WallMillis::default();
        let ago = lock.store_now.0.saturating_sub(success.at.0);
        // If the store's clock was set back, a success in the future counts for one period only.
        let recent = Duration::from_millis(ago.unsigned_abs()) < once_per.period;
        let ago = Duration::from_millis(u64::try_from(ago).unwrap_or(0));
        (known && recent).then_some(ago)
    }
}

/// An input of [`LockContender::handle`](super::LockContender::handle).
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum LockInput {
    /// The time returned by [`LockContender::next_wakeup`](super::LockContender::next_wakeup) has
    /// come.
    Tick,
    /// The outcome of a call. After a timeout, the outcome is [`LockOutcome::Unknown`]. The true
    /// outcome may follow later with the same id, at most once.
    Reply {
        /// The answered call.
        call: CallId,
        /// Outcome of the call.
        outcome: LockOutcome,
    },
    /// An event of the stream that [`LockEffect::Watch`](super::LockEffect::Watch) requested.
    Hint(Hint),
    /// The driver discovered a new primary. The old primary may never answer a renewal.
    PrimaryChanged,
    /// Leave the queue, or release the lock without its minimum hold. Pass this input only if no
    /// work has begun and none will begin.
    GiveUp,
    /// The owner is gone. Stop waiting, or release the lock like [`LockInput::Release`].
    Abandoned,
    /// Release the lock. Even after a loss, the work must be confirmed gone first (I6).
    Release,
    /// Release the lock, and record the success if the options request it.
    Succeeded,
}
