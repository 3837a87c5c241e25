//! Who contends, and everything that can happen to a contender.

use super::document::{Mode, SLOTS_MAX};
use super::operation::{Hint, Outcome};
use super::sightings::Sightings;
use crate::election::{CallId, Identity, Timings, Token};

/// How many may hold a semaphore: 1 to [`SLOTS_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slots(u32);

impl Slots {
    /// Checks a number of slots; `None` if it is 0 or above [`SLOTS_MAX`].
    pub const fn new(slots: u32) -> Option<Self> {
        if slots == 0 || slots > SLOTS_MAX {
            None
        } else {
            Some(Self(slots))
        }
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// How a contender wants to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Want {
    /// Alone.
    Exclusive,
    /// Beside other readers.
    Shared,
    /// One of so many slots; all contenders of a lock name the same number.
    Slot(Slots),
}

impl Want {
    /// What its entry says.
    pub const fn mode(self) -> Mode {
        match self {
            Self::Exclusive => Mode::Exclusive,
            Self::Shared => Mode::Shared,
            Self::Slot(_) => Mode::Slot,
        }
    }

    /// The `slots` that its document must have.
    pub const fn slots(self) -> u32 {
        match self {
            Self::Exclusive | Self::Shared => 0,
            Self::Slot(slots) => slots.get(),
        }
    }
}

/// Who a contender is and how it behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Its name, for people.
    pub identity: Identity,
    /// How it wants to hold.
    pub want: Want,
    /// Its durations.
    pub timings: Timings,
    /// Acquire without waiting for others, or end as [`End::Busy`](super::End::Busy).
    pub at_once: bool,
    /// Open the change stream before joining. That saves the read that must
    /// follow an opening where others mostly hold the lock, and costs a stream
    /// where it is mostly free.
    pub watch_first: bool,
    /// The highest token of this lock that is remembered from before.
    pub token_remembered: Token,
    /// What an earlier contender of the same boot saw and how long ago, so that
    /// one that does not wait can sweep the dead too.
    pub sightings: Sightings,
}

/// What a contender is told by [`LockContender::handle`](super::LockContender::handle).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// The instant of [`LockContender::next_wakeup`](super::LockContender::next_wakeup) has come.
    Tick,
    /// A call's outcome. After a time-out it is [`Outcome::Unknown`]; the true
    /// outcome may follow later with the same id, as often as once.
    Reply {
        /// The call that is answered.
        call: CallId,
        /// What became of it.
        outcome: Outcome,
    },
    /// News of the change stream that [`Effect::Watch`](super::Effect::Watch)
    /// asked for. A hint: it never grants authority.
    Hint(Hint),
    /// The driver discovered a new primary: a renewal that hangs on the old
    /// one is joined by another.
    PrimaryChanged,
    /// The wait is over: leave the queue. A lock that is held, or was, is given
    /// back as by [`Input::Release`], so nothing may run under it any more.
    GiveUp,
    /// The work under the lock is over, and confirmed gone (I6): give the lock
    /// back. After a loss: nothing runs under the lost claim any more.
    Release,
}
