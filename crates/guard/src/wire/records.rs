//! The content of the records between daemon, guard and shim.

use rustix::process::WaitIdStatus;

use super::{Record, WORDS};
use crate::claim_share::Place;
use leasehold_core::deadline_policy::{Order, Stop, Terms};
use leasehold_core::election::BootTime;

/// The record of the daemon: the complete desired state at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ToGuard {
    pub(crate) order: Order,
    /// A signal to relay; new if `relays` has changed.
    pub(crate) relay: i32,
    pub(crate) relays: u32,
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
    /// The process group from which CMD takes over the terminal; 0 if it does not.
    pub(crate) foreground: i32,
    /// The guard's place in the claim file, if the file was sent too.
    pub(crate) place: Place,
    /// True if the claim lock was sent.
    pub(crate) claims: bool,
}

/// The only record to a shim; sent with standard input and the exec spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShimStart {
    pub(crate) guard: i32,
    pub(crate) valid_until: BootTime,
    /// As in [`GuardStart`].
    pub(crate) foreground: i32,
}

/// The reason why a shim did not become CMD. If it did, nothing is sent and the exec closes the
/// socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShimFailed {
    /// 0 if the deadline had passed.
    pub(crate) errno: i32,
}

/// The progress of CMD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
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

/// The record of the guard: everything that it knows at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) stage: Stage,
    /// 0 before there is a leader.
    pub(crate) leader: i32,
    pub(crate) end: LeaderEnd,
    /// True if CMD's leader ended after it had been asked to end or killed.
    pub(crate) by_us: bool,
    /// True if the deadline passed in the guard.
    pub(crate) expired: bool,
    /// True if SIGKILL was sent, so the guard has enforced its part of the deadline.
    pub(crate) killed: bool,
    /// The signal that stopped (not ended) CMD; 0 while CMD runs.
    pub(crate) stopped: i32,
}

/// Encodes a signed number in the low half of a word.
fn low(value: i32) -> u64 {
    u64::from(value.cast_unsigned())
}

fn signed(word: u64) -> i32 {
    u32::try_from(word).unwrap_or_default().cast_signed()
}

impl Record for ToGuard {
    fn words(&self) -> [u64; WORDS] {
        let Self {
            order: Order { terms, stop, kill },
            relay,
            relays,
        } = *self;
        [
            terms.valid_until.as_nanos(),
            terms.kill_at.as_nanos(),
            low(stop.map_or(0, |stop| stop.signal)),
            stop.map_or(0, |stop| stop.kill_at.as_nanos()),
            u64::from(kill),
            low(relay),
            u64::from(relays),
            0,
        ]
    }

    fn of(words: [u64; WORDS]) -> Self {
        let [
            valid_until,
            kill_at,
            signal,
            stop_at,
            kill,
            relay,
            relays,
            _,
        ] = words;
        let stop = Stop {
            signal: signed(signal),
            kill_at: BootTime::from_nanos(stop_at),
        };
        Self {
            order: Order {
                terms: Terms {
                    valid_until: BootTime::from_nanos(valid_until),
                    kill_at: BootTime::from_nanos(kill_at),
                },
                stop: (stop.signal != 0).then_some(stop),
                kill: kill != 0,
            },
            relay: signed(relay),
            relays: signed(relays).cast_unsigned(),
        }
    }
}

impl Record for GuardBegin {
    fn words(&self) -> [u64; WORDS] {
        [u64::from(self.on_terminal), 0, 0, 0, 0, 0, 0, 0]
    }

    fn of(words: [u64; WORDS]) -> Self {
        Self {
            on_terminal: words[0] != 0,
        }
    }
}

impl Record for GuardStart {
    fn words(&self) -> [u64; WORDS] {
        let Self {
            terms,
            stop_signal,
            foreground,
            place,
            claims,
        } = *self;
        let (valid_until, kill_at) = (terms.valid_until.as_nanos(), terms.kill_at.as_nanos());
        let (stop_signal, foreground) = (low(stop_signal), low(foreground));
        let place = place.index() as u64;
        [
            valid_until,
            kill_at,
            stop_signal,
            foreground,
            place,
            u64::from(claims),
            0,
            0,
        ]
    }

    fn of(words: [u64; WORDS]) -> Self {
        let [
            valid_until,
            kill_at,
            stop_signal,
            foreground,
            place,
            claims,
            ..,
        ] = words;
        Self {
            terms: Terms {
                valid_until: BootTime::from_nanos(valid_until),
                kill_at: BootTime::from_nanos(kill_at),
            },
            stop_signal: signed(stop_signal),
            foreground: signed(foreground),
            place: Place::of(place).unwrap_or(Place::Command),
            claims: claims != 0,
        }
    }
}

impl Record for ShimStart {
    fn words(&self) -> [u64; WORDS] {
        let Self {
            guard,
            valid_until,
            foreground,
        } = *self;
        let (guard, foreground) = (low(guard), low(foreground));
        [guard, valid_until.as_nanos(), foreground, 0, 0, 0, 0, 0]
    }

    fn of(words: [u64; WORDS]) -> Self {
        let [guard, valid_until, foreground, ..] = words;
        Self {
            guard: signed(guard),
            valid_until: BootTime::from_nanos(valid_until),
            foreground: signed(foreground),
        }
    }
}

impl Record for ShimFailed {
    fn words(&self) -> [u64; WORDS] {
        [low(self.errno), 0, 0, 0, 0, 0, 0, 0]
    }

    fn of(words: [u64; WORDS]) -> Self {
        Self {
            errno: signed(words[0]),
        }
    }
}

impl Record for Report {
    fn words(&self) -> [u64; WORDS] {
        let Self {
            stage,
            leader,
            end,
            by_us,
            expired,
            killed,
            stopped,
        } = *self;
        let stage = match stage {
            Stage::Starting => 0,
            Stage::Running => 1,
            Stage::LeaderEnded => 2,
            Stage::Gone => 3,
        };
        let (kind, value) = match end {
            LeaderEnd::Unknown => (0, 0),
            LeaderEnd::Exited(code) => (1, code),
            LeaderEnd::Signalled(signal) => (2, signal),
            LeaderEnd::NotExecuted(errno) => (3, errno),
            LeaderEnd::NotSpawned(errno) => (4, errno),
            LeaderEnd::Refused => (5, 0),
        };
        let flags = u64::from(by_us) | u64::from(expired) << 1 | u64::from(killed) << 2;
        let (leader, stopped) = (low(leader), low(stopped));
        [stage, leader, kind, low(value), flags, stopped, 0, 0]
    }

    fn of(words: [u64; WORDS]) -> Self {
        let [stage, leader, kind, value, flags, stopped, ..] = words;
        let value = signed(value);
        Self {
            stage: match stage {
                0 => Stage::Starting,
                1 => Stage::Running,
                2 => Stage::LeaderEnded,
                _ => Stage::Gone,
            },
            leader: signed(leader),
            end: match kind {
                1 => LeaderEnd::Exited(value),
                2 => LeaderEnd::Signalled(value),
                3 => LeaderEnd::NotExecuted(value),
                4 => LeaderEnd::NotSpawned(value),
                5 => LeaderEnd::Refused,
                _ => LeaderEnd::Unknown,
            },
            by_us: flags & 1 != 0,
            expired: flags & 2 != 0,
            killed: flags & 4 != 0,
            stopped: signed(stopped),
        }
    }
}
