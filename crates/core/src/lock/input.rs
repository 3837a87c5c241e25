//! Options and inputs of a contender.

use std::time::Duration;

use super::document::{EntryMode, LockDocument, MIN_HOLD_MAX, SLOTS_MAX};
use super::grant::Grant;
use super::observations::Observations;
use super::operation::{Hint, LockOutcome};
use super::success::OncePer;
use crate::election::{CallId, Identity, Timings, Token};

/// Number of slots of a semaphore, 1 to [`SLOTS_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "u32", into = "u32"))]
pub struct Slots(u32);

impl Slots {
    /// Checks a number of slots. Returns `None` if it is 0 or above [`SLOTS_MAX`].
    pub const fn new(slots: u32) -> Option<Self> {
        if slots == 0 || slots > SLOTS_MAX {
            None
        } else {
            Some(Self(slots))
        }
    }

    /// Returns the number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// Minimum hold of a place, counted from its acquisition: up to [`MIN_HOLD_MAX`]; zero if the place
/// is freed when the work ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "Duration", into = "Duration"))]
pub struct MinHold(Duration);

impl MinHold {
    /// No minimum: the place is freed when the work ends.
    pub const NONE: Self = Self(Duration::ZERO);

    /// Checks a duration. Returns `None` if it is above [`MIN_HOLD_MAX`].
    pub fn new(duration: Duration) -> Option<Self> {
        (duration <= MIN_HOLD_MAX).then_some(Self(duration))
    }

    /// Returns the duration.
    pub const fn get(self) -> Duration {
        self.0
    }
}

/// Mode in which a contender wants to hold the lock. Exhaustive, because programs only request
/// modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum LockMode {
    /// Not together with any other holder.
    Exclusive,
    /// Together with other readers.
    Shared,
    /// One of this many slots. All contenders of a lock must give the same number.
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

/// Identity and settings of a contender.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Options {
    /// Name of the contender; informational.
    pub identity: Identity,
    /// Requested mode.
    #[cfg_attr(feature = "serde", serde(rename = "want"))]
    pub mode: LockMode,
    /// Minimum hold of the place, even if the work ends or the process dies. It is declared before
    /// the acquisition, which takes one more write.
    #[cfg_attr(feature = "serde", serde(rename = "at_least"))]
    pub min_hold: MinHold,
    /// Durations used by the contender.
    pub timings: Timings,
    /// Skip the work if it succeeded recently, and record its success. For exclusive locks only.
    pub once_per: Option<OncePer>,
    /// Acquire without waiting for others, or end as [`End::Busy`](super::End::Busy).
    pub non_blocking: bool,
    /// Open the change stream before joining. This saves the read that must follow an opening if
    /// others usually hold the lock, and costs a stream if the lock is usually free.
    pub watch_first: bool,
    /// Highest token of this lock remembered from earlier contenders.
    pub token_remembered: Token,
    /// Observations of an earlier contender of the same boot, with their age. With these, a
    /// contender that does not wait can evict expired entries too.
    pub observations: Observations,
}

impl Options {
    /// Returns true unless the lock has slots and an older version granted without a slot.
    pub(super) fn is_served_by(&self, slot: Option<u32>) -> bool {
        self.mode.slots() == 0 || slot.is_some()
    }

    /// Returns true if work may begin by this grant before its confirmation. A grant declares no
    /// minimum hold, and its event does not show the successes.
    pub(super) fn may_hold_by(&self, grant: &Grant) -> bool {
        let shown = self.once_per.is_none() || planted!(GrantWithoutSuccesses);
        shown && self.min_hold == MinHold::NONE && self.is_served_by(grant.slot)
    }

    /// Returns how long ago the work succeeded, if that is too recent to repeat it.
    pub(super) fn done_ago(&self, lock: &LockDocument) -> Option<Duration> {
        self.once_per.as_ref()?.done_ago(lock)
    }
}

/// An input of [`LockContender::handle`](super::LockContender::handle).
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum LockInput {
    /// The instant of [`LockContender::next_wakeup`](super::LockContender::next_wakeup) has come.
    Tick,
    /// The outcome of a call. After a timeout it is [`LockOutcome::Unknown`], and the true outcome may
    /// follow later with the same id, at most once.
    Reply {
        /// The answered call.
        call: CallId,
        /// Outcome of the call.
        outcome: LockOutcome,
    },
    /// An event of the change stream that [`LockEffect::Watch`](super::LockEffect::Watch) requested. A hint
    /// never grants authority.
    Hint(Hint),
    /// The driver discovered a new primary. A second renewal is sent if one hangs on the old
    /// primary.
    PrimaryChanged,
    /// Stop waiting and leave the queue. A lock that is held is released too, as if no work had
    /// begun: nothing may run under it from then on, and its place is not kept.
    GiveUp,
    /// The owner is gone. Stop waiting, or release the lock like [`LockInput::Release`].
    Abandoned,
    /// Release the lock. The work under it must have ended and be confirmed gone (I6); after a
    /// loss, nothing may run under the lost claim.
    Release,
    /// Release the lock after work that succeeded. The success is recorded if the options request
    /// it.
    Succeeded,
}
