//! The content of the records between daemon, guard and shim.

use std::time::Duration;

use rustix::process::WaitIdStatus;

use super::{WireRecord, Words};
use crate::claim_share::ClaimPlace;
use leasehold_core::deadline_policy::{DesiredState, Leftovers, Stop, StopScope, Terms};
use leasehold_core::election::BootTime;

/// The record of the daemon: the complete desired state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ToGuard {
    pub(crate) desired: DesiredState,
    /// A signal to relay; new if `relays` has changed.
    pub(crate) relay: i32,
    pub(crate) relays: u32,
}

impl ToGuard {
    /// Returns the state of a new CMD under these deadlines.
    pub(crate) fn new(terms: Terms) -> Self {
        Self {
            desired: DesiredState::run(terms),
            relay: 0,
            relays: 0,
        }
    }
}

/// The first record to a guard; sent with standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GuardBegin {
    /// True if the daemon has a controlling terminal, so the guard stays in its session.
    pub(crate) on_terminal: bool,
}

/// The second record to a guard, when there is authority; sent with the exec spec, the claim lock and a
/// descriptor to keep open; the last two are optional.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GuardStart {
    pub(crate) terms: Terms,
    pub(crate) stop_signal: i32,
    pub(crate) stop_scope: StopScope,
    /// Times of descendants that outlive CMD's first process.
    pub(crate) leftovers: Leftovers,
    /// The process group that CMD takes the terminal over from; 0 if it does not.
    pub(crate) foreground: i32,
    /// The guard's place in the claim file, if the file was sent too.
    pub(crate) place: ClaimPlace,
    /// True if the claim lock was sent.
    pub(crate) claims: bool,
}

/// The only record to a shim; sent with standard input, the exec spec and, optionally, the claim lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShimStart {
    pub(crate) guard: i32,
    pub(crate) valid_until: BootTime,
    /// As in [`GuardStart`].
    pub(crate) foreground: i32,
    /// As in [`GuardStart`].
    pub(crate) place: ClaimPlace,
    /// As in [`GuardStart`].
    pub(crate) claims: bool,
}

/// The reason why a shim did not become CMD. If it did, nothing is sent and the exec closes the
/// socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShimFailed {
    /// 0 if the deadline had passed.
    pub(crate) errno: i32,
    /// True if CMD could not be recorded in the claim file, so it was not executed.
    pub(crate) unrecorded: bool,
}

/// The progress of CMD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CommandStage {
    Starting,
    Running,
    LeaderEnded,
    Gone,
}

/// The end of CMD's leader, as reported by the kernel or the shim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaderEnd {
    Unknown,
    Exited(i32),
    Signalled(i32),
    NotExecuted(i32),
    NotSpawned(i32),
    Refused,
}

impl LeaderEnd {
    /// Converts a status of `waitid`.
    pub(crate) fn of(status: &WaitIdStatus) -> Self {
        match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Self::Exited(code),
            (None, Some(signal)) => Self::Signalled(signal),
            (None, None) => Self::Unknown,
        }
    }
}

/// The record of the guard: everything that it knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GuardReport {
    pub(crate) stage: CommandStage,
    /// 0 before there is a leader.
    pub(crate) leader: i32,
    pub(crate) end: LeaderEnd,
    /// True if CMD's leader ended after it had been asked to end or killed.
    pub(crate) by_us: bool,
    /// True if the deadline passed in the guard.
    pub(crate) expired: bool,
    /// True if SIGKILL was sent, so the guard has enforced its part of the deadline.
    pub(crate) killed: bool,
    /// True while descendants of a CMD that has exited may end by themselves, and afterwards if they
    /// did.
    pub(crate) lingers: bool,
    /// The signal that stopped (not ended) CMD; 0 while CMD runs.
    pub(crate) stopped: i32,
}

/// Converts records field by field, in this order.
macro_rules! records {
    ($($name:ident { $($field:ident),+ })+) => {$(
        impl WireRecord for $name {
            fn put(&self, words: &mut Words) {
                $(self.$field.put(words);)+
            }

            fn take(words: &mut Words) -> Self {
                Self { $($field: WireRecord::take(words)),+ }
            }
        }
    )+};
}

records! {
    Terms { valid_until, kill_at }
    ToGuard { desired, relay, relays }
    GuardBegin { on_terminal }
    Leftovers { linger, grace }
    GuardStart { terms, stop_signal, stop_scope, leftovers, foreground, place, claims }
    ShimStart { guard, valid_until, foreground, place, claims }
    ShimFailed { errno, unrecorded }
    GuardReport { stage, leader, end, by_us, expired, killed, lingers, stopped }
}

/// Converts values of one word.
macro_rules! words {
    ($($name:ty: |$value:ident| $put:expr, |$word:ident| $take:expr;)+) => {$(
        impl WireRecord for $name {
            fn put(&self, words: &mut Words) {
                let $value = *self;
                words.put($put);
            }

            fn take(words: &mut Words) -> Self {
                let $word = words.take();
                $take
            }
        }
    )+};
}

words! {
    bool: |value| u64::from(value), |word| word != 0;
    u32: |value| u64::from(value), |word| u32::try_from(word).unwrap_or_default();
    i32: |value| u64::from(value.cast_unsigned()),
        |word| u32::try_from(word).unwrap_or_default().cast_signed();
    Duration: |value| u64::try_from(value.as_nanos()).unwrap_or(u64::MAX),
        |word| Duration::from_nanos(word);
    BootTime: |value| value.as_nanos(), |word| BootTime::from_nanos(word);
    StopScope: |value| u64::from(value == StopScope::Main), |word| match word {
        1 => StopScope::Main,
        _ => StopScope::Group,
    };
    ClaimPlace: |value| value.index() as u64, |word| ClaimPlace::of(word).unwrap_or(ClaimPlace::Command);
    CommandStage: |value| value as u64, |word| match word {
        0 => CommandStage::Starting,
        1 => CommandStage::Running,
        2 => CommandStage::LeaderEnded,
        _ => CommandStage::Gone,
    };
}

/// A guard receives a loss as its stop.
impl WireRecord for DesiredState {
    fn put(&self, words: &mut Words) {
        self.terms.put(words);
        self.stop.put(words);
        self.kill.put(words);
    }

    fn take(words: &mut Words) -> Self {
        Self {
            terms: WireRecord::take(words),
            stop: WireRecord::take(words),
            kill: WireRecord::take(words),
            lost: false,
        }
    }
}

impl WireRecord for Option<Stop> {
    fn put(&self, words: &mut Words) {
        self.map_or(0, |stop| stop.signal).put(words);
        self.map_or_else(BootTime::default, |stop| stop.kill_at)
            .put(words);
    }

    fn take(words: &mut Words) -> Self {
        let (signal, kill_at) = (i32::take(words), BootTime::take(words));
        (signal != 0).then_some(Stop { signal, kill_at })
    }
}

impl WireRecord for LeaderEnd {
    fn put(&self, words: &mut Words) {
        let (kind, value) = match *self {
            Self::Unknown => (0, 0),
            Self::Exited(code) => (1, code),
            Self::Signalled(signal) => (2, signal),
            Self::NotExecuted(errno) => (3, errno),
            Self::NotSpawned(errno) => (4, errno),
            Self::Refused => (5, 0),
        };
        words.put(kind);
        value.put(words);
    }

    fn take(words: &mut Words) -> Self {
        let (kind, value) = (words.take(), i32::take(words));
        match kind {
            1 => Self::Exited(value),
            2 => Self::Signalled(value),
            3 => Self::NotExecuted(value),
            4 => Self::NotSpawned(value),
            5 => Self::Refused,
            _ => Self::Unknown,
        }
    }
}
