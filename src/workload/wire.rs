//! What daemon, guard and shim send each other: records of fixed length over
//! SOCK_SEQPACKET, which keeps each of them whole.
//!
//! A record is the whole of what its sender wants or knows, never a
//! difference. A sender that finds the socket full keeps the newest record and
//! forgets the ones before it, so a queue that nobody reads costs nothing.
//!
//! Descriptors travel with the first record (SCM_RIGHTS) and arrive with
//! FD_CLOEXEC set. So no descriptor is ever inheritable: the standard library
//! maps 0, 1 and 2 of a child, the socket is the child's 0, and the true
//! standard input comes over it. Clearing FD_CLOEXEC around a spawn instead
//! would leak the claim lock into whatever another thread starts meanwhile.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg, send, sendmsg,
    socketpair,
};
use rustix::process::WaitIdStatus;

use super::judge::{Order, Stop, Terms};
use crate::election::BootTime;

/// Standard input and the claim lock.
const DESCRIPTORS_MAX: usize = 2;

/// A connected pair. Neither end is inherited.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        flags,
        None,
    )?)
}

/// All records have the same length: eight words of 64 bits, little-endian.
const WORDS: usize = 8;
const LENGTH: usize = WORDS * 8;

/// A record as words.
pub(super) trait Record: Sized {
    fn words(&self) -> [u64; WORDS];
    fn of(words: [u64; WORDS]) -> Self;
}

fn encode(record: &impl Record) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    for (place, word) in bytes.chunks_exact_mut(8).zip(record.words()) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn decode<R: Record>(bytes: [u8; LENGTH]) -> R {
    let mut words = [0; WORDS];
    for (word, place) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_le_bytes(*place);
    }
    R::of(words)
}

/// Sends a record. `false`: there is no room now.
pub(super) fn post(socket: BorrowedFd<'_>, record: &impl Record) -> io::Result<bool> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    match send(socket, &encode(record), flags) {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN | Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// What one look into a socket found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Received<R> {
    /// A record.
    Record(R),
    /// Nothing now.
    Nothing,
    /// The other end is closed, and everything that it sent has been read.
    Closed,
}

/// Receives the next record.
pub(super) fn take<R: Record>(socket: BorrowedFd<'_>) -> Received<R> {
    let mut bytes = [0; LENGTH];
    loop {
        match recv(socket, &mut bytes, RecvFlags::DONTWAIT) {
            Ok((_, LENGTH)) => return Received::Record(decode(bytes)),
            Err(Errno::AGAIN) => return Received::Nothing,
            // The other end was closed with records of ours unread; its own
            // records are still to be had after this error.
            Err(Errno::INTR | Errno::CONNRESET) => {}
            // Only a shorter record than ours is left: nobody sends those, and
            // whoever can no longer be understood is as good as gone.
            Ok(_) | Err(_) => return Received::Closed,
        }
    }
}

/// Sends a record with descriptors: the first one on a new socket, where there
/// is room.
pub(super) fn post_with(
    socket: BorrowedFd<'_>,
    record: &impl Record,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::INVAL.into());
    }
    let bytes = encode(record);
    let parts = [IoSlice::new(&bytes)];
    sendmsg(socket, &parts, &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives the record that was sent before this process began.
pub(super) fn take_with<R: Record>(
    socket: BorrowedFd<'_>,
) -> io::Result<(R, [Option<OwnedFd>; DESCRIPTORS_MAX])> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; LENGTH];
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let message = recvmsg(socket, &mut parts, &mut ancillary, flags)?;
    if message.bytes != LENGTH {
        return Err(Errno::PROTO.into());
    }
    let mut descriptors = [None, None];
    let received = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        _ => None,
    });
    for (place, descriptor) in descriptors.iter_mut().zip(received.flatten()) {
        *place = Some(descriptor);
    }
    Ok((decode(bytes), descriptors))
}

/// What the daemon sends: all that it wants now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ToGuard {
    pub(super) order: Order,
    /// A signal to pass on. It was not sent before if `relays` has grown.
    pub(super) relay: i32,
    pub(super) relays: u32,
}

/// The first record to a guard; standard input and the claim lock go with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GuardStart {
    pub(super) terms: Terms,
    pub(super) stop_signal: i32,
    /// The daemon has a controlling terminal, so the guard stays in its session.
    pub(super) on_terminal: bool,
    /// The process group from which CMD takes over the terminal; 0: it does not.
    pub(super) foreground: i32,
}

/// The first record to a shim; standard input goes with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ShimStart {
    pub(super) guard: i32,
    pub(super) valid_until: BootTime,
    /// As in [`GuardStart`].
    pub(super) foreground: i32,
}

/// Why a shim did not become CMD. Nothing is sent if it did: the socket is
/// closed by the exec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ShimFailed {
    /// 0: the deadline had passed.
    pub(super) errno: i32,
}

/// How far CMD is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Starting,
    Running,
    LeaderEnded,
    Gone,
}

/// How CMD ended, as the kernel or the shim tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaderEnd {
    Unknown,
    Exited(i32),
    Signalled(i32),
    NotExecuted(i32),
    NotSpawned(i32),
    Refused,
}

impl LeaderEnd {
    /// As `waitid` told it.
    pub(super) fn of(status: &WaitIdStatus) -> Self {
        match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Self::Exited(code),
            (None, Some(signal)) => Self::Signalled(signal),
            (None, None) => Self::Unknown,
        }
    }
}

/// What the guard sends: all that it knows now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) stage: Stage,
    /// 0 before there is one.
    pub(super) leader: i32,
    pub(super) end: LeaderEnd,
    /// CMD's leader ended after it had been told to.
    pub(super) by_us: bool,
    /// The deadline passed in the guard.
    pub(super) expired: bool,
    /// SIGKILL was sent: the guard has kept its part of the deadline.
    pub(super) killed: bool,
    /// The signal that stopped (not ended) CMD; 0 while it goes on.
    pub(super) stopped: i32,
}

/// Signed numbers travel in the low half of a word.
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

impl Record for GuardStart {
    fn words(&self) -> [u64; WORDS] {
        let Self {
            terms,
            stop_signal,
            on_terminal,
            foreground,
        } = *self;
        [
            terms.valid_until.as_nanos(),
            terms.kill_at.as_nanos(),
            low(stop_signal),
            u64::from(on_terminal),
            low(foreground),
            0,
            0,
            0,
        ]
    }

    fn of(words: [u64; WORDS]) -> Self {
        let [
            valid_until,
            kill_at,
            stop_signal,
            on_terminal,
            foreground,
            ..,
        ] = words;
        Self {
            terms: Terms {
                valid_until: BootTime::from_nanos(valid_until),
                kill_at: BootTime::from_nanos(kill_at),
            },
            stop_signal: signed(stop_signal),
            on_terminal: on_terminal != 0,
            foreground: signed(foreground),
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
