//! The messages between daemon, guard and shim: records in JSON over SOCK_SEQPACKET, which
//! preserves record boundaries. Encoding and decoding allocate nothing. Each record is the complete
//! desired or actual state, so a sender whose socket is full keeps only its newest unsent record.
//!
//! Descriptors travel with the records that start a process (SCM_RIGHTS), and arrive with
//! FD_CLOEXEC. Without this flag, another thread's spawn would inherit the claim lock. The socket
//! is a child's standard input, so the real standard input is passed over the socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg,
    send, sendmsg, socket_with, socketpair,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::claim_share::{ClaimPlace, ClaimShare};
use super::progress::CommandEnd;
use leasehold_core::deadline_policy::{DesiredState, PolicyOptions, Terms};
use leasehold_core::election::BootTime;

/// Maximum number of descriptors: the exec spec, the claim lock, and either the witness or a
/// descriptor to keep.
const DESCRIPTORS_MAX: usize = 3;

/// Creates an unconnected socket.
pub(super) fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let kind = SocketType::SEQPACKET;
    Ok(socket_with(AddressFamily::UNIX, kind, flags, None)?)
}

pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    Ok(pair)
}

/// Maximum length of a record. The longest record has about 350 bytes.
const LENGTH_MAX: usize = 512;

fn encode<'a>(record: &impl Serialize, bytes: &'a mut [u8; LENGTH_MAX]) -> io::Result<&'a [u8]> {
    let mut rest = &mut bytes[..];
    serde_json::to_writer(&mut rest, record)?;
    let length = LENGTH_MAX - rest.len();
    Ok(&bytes[..length])
}

fn decode<R: DeserializeOwned>(bytes: &[u8]) -> Option<R> {
    serde_json::from_slice(bytes).ok()
}

/// Loads into memory the code that encodes and decodes records.
pub(super) fn rehearse<R: Serialize + DeserializeOwned>(record: &R) {
    let mut bytes = [0; LENGTH_MAX];
    let decoded = encode(record, &mut bytes).map(|encoded| decode::<R>(encoded).is_some());
    let _ = std::hint::black_box(decoded);
}

pub(super) fn post(socket: BorrowedFd<'_>, record: &impl Serialize) -> io::Result<bool> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    match send(socket, encode(record, &mut [0; LENGTH_MAX])?, flags) {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN | Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Received<R> {
    Record(R),
    Nothing,
    Closed,
}

pub(super) fn take<R: DeserializeOwned>(socket: BorrowedFd<'_>) -> Received<R> {
    let mut bytes = [0; LENGTH_MAX];
    loop {
        // TRUNC reports the full length of an overlong record.
        match recv(socket, &mut bytes, RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
            Ok((_, length @ 1..=LENGTH_MAX)) => {
                return decode(&bytes[..length]).map_or(Received::Closed, Received::Record);
            }
            Err(Errno::AGAIN) => return Received::Nothing,
            // The peer left records unread. The records that it sent are still readable.
            Err(Errno::INTR | Errno::CONNRESET) => {}
            // The end of file, an error, or a peer whose record is overlong or undecodable.
            Ok(_) | Err(_) => return Received::Closed,
        }
    }
}

/// Does not check for room, because the receiver has few unread records.
pub(super) fn post_with(
    socket: BorrowedFd<'_>,
    record: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::INVAL.into());
    }
    let mut bytes = [0; LENGTH_MAX];
    let parts = [IoSlice::new(encode(record, &mut bytes)?)];
    sendmsg(socket, &parts, &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

pub(super) type With<R> = (R, [Option<OwnedFd>; DESCRIPTORS_MAX]);

pub(super) fn wait_with<R: DeserializeOwned>(
    socket: BorrowedFd<'_>,
) -> io::Result<Option<With<R>>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; LENGTH_MAX];
    let mut parts = [IoSliceMut::new(&mut bytes)];
    retry_on_intr(|| poll(&mut [PollFd::new(&socket, PollFlags::IN)], None))?;
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let length = match recvmsg(socket, &mut parts, &mut ancillary, flags) {
        // The limit on open files left no room for a descriptor.
        Ok(message) if message.flags.contains(ReturnFlags::CTRUNC) => {
            return Err(Errno::MFILE.into());
        }
        Ok(message) if message.flags.contains(ReturnFlags::TRUNC) => {
            return Err(Errno::PROTO.into());
        }
        Ok(message) if message.bytes > 0 => message.bytes,
        Ok(_) | Err(Errno::CONNRESET) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut descriptors = [const { None }; DESCRIPTORS_MAX];
    let received = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        _ => None,
    });
    for (place, descriptor) in descriptors.iter_mut().zip(received.flatten()) {
        *place = Some(descriptor);
    }
    let record = decode(&bytes[..length]).ok_or(Errno::PROTO)?;
    Ok(Some((record, descriptors)))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ToGuard {
    pub(super) desired: DesiredState,
    /// The newest signal to relay. The guard relays the signal whenever `relays` has changed.
    pub(super) relay: i32,
    pub(super) relays: u32,
    /// True once the daemon knows that CMD is gone, so that the guard need not become the witness.
    pub(super) dismissed: bool,
}

impl ToGuard {
    pub(super) fn new(terms: Terms) -> Self {
        Self {
            desired: DesiredState::run(terms),
            relay: 0,
            relays: 0,
            dismissed: false,
        }
    }
}

/// The first record of an attached guard, with its own pidfd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GuardHello {
    /// Version of the records between daemon and guard.
    pub(super) protocol: u32,
    /// The inode of the network namespace, which the containers of a pod share.
    pub(super) network_namespace: u64,
    /// The inode of the time namespace, whose CLOCK_BOOTTIME the deadlines refer to.
    pub(super) time_namespace: u64,
    /// The [`GuardStart::session`] of this guard's last command, which has ended.
    pub(super) ended: Option<BootTime>,
}

impl GuardHello {
    pub(super) const PROTOCOL: u32 = 1;
}

/// The first record to a guard, with the descriptor of the real standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GuardBegin {
    /// True if the daemon has a controlling terminal. The guard then stays in the daemon's session.
    pub(super) on_terminal: bool,
    /// True if the guard will receive the daemon's configuration, which CMD must not read (I12).
    pub(super) has_witness: bool,
}

/// The record that starts CMD. Carries the exec spec and, optionally, the claim lock and either the
/// witness or a descriptor to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GuardStart {
    pub(super) policy: PolicyOptions,
    /// The process group whose foreground CMD takes over; 0 if there is none.
    pub(super) foreground: i32,
    pub(super) place: Option<ClaimPlace>,
    pub(super) has_witness: bool,
    /// Time from a stop request in the guard's own container to SIGKILL.
    pub(super) stop_grace: Duration,
    /// The time of the order, which identifies this command in the [`GuardHello`] of an attached
    /// guard.
    pub(super) session: BootTime,
}

/// Returns the exec spec, the claim and the last descriptor of a start.
pub(super) fn split(
    start: &GuardStart,
    descriptors: [Option<OwnedFd>; DESCRIPTORS_MAX],
) -> io::Result<(OwnedFd, Option<ClaimShare>, Option<OwnedFd>)> {
    match (descriptors, start.place) {
        ([Some(exec_spec), Some(lock), last], Some(place)) => {
            Ok((exec_spec, Some(ClaimShare::new(lock, place)), last))
        }
        ([Some(exec_spec), last, None], None) => Ok((exec_spec, None, last)),
        _ => Err(Errno::PROTO.into()),
    }
}

/// The only record to a shim. Carries standard input, the exec spec and, optionally, the claim
/// lock. The shim answers with a [`CommandEnd`], unless an exec closes the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ShimStart {
    pub(super) guard: i32,
    pub(super) valid_until: BootTime,
    pub(super) foreground: i32,
    pub(super) place: Option<ClaimPlace>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub(super) enum CommandStage {
    #[default]
    Starting,
    Running,
    LeaderEnded,
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct GuardReport {
    pub(super) stage: CommandStage,
    pub(super) leader: i32,
    pub(super) end: CommandEnd,
    pub(super) by_us: bool,
    /// True if the guard has sent SIGKILL, and so has enforced the deadline.
    pub(super) killed: bool,
    /// True while descendants of an exited CMD may end by themselves. Stays true after all of them
    /// have ended.
    pub(super) lingers: bool,
    /// The signal that stopped (not ended) CMD; 0 while CMD runs.
    pub(super) stopped: i32,
}

#[cfg(test)]
mod tests;
