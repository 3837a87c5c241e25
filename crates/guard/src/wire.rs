//! The messages between daemon, guard and shim: records in JSON over SOCK_SEQPACKET, which preserves
//! record boundaries. [`records`] defines their content. Encoding and decoding allocate nothing.
//!
//! A record is the complete state that its sender wants or knows, never a difference. A sender that
//! finds the socket full keeps the newest record and discards older ones, so an unread queue costs
//! nothing.
//!
//! Descriptors travel with the records that start something (SCM_RIGHTS) and arrive with FD_CLOEXEC
//! set. No descriptor is therefore ever inheritable: the standard library maps 0, 1 and 2 of a
//! child, the socket is the child's 0, and the real standard input is passed over it. Clearing
//! FD_CLOEXEC around a spawn instead would leak the claim lock into any process that another thread
//! starts meanwhile.

mod records;

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg,
    send, sendmsg, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(super) use self::records::{
    CommandStage, GuardBegin, GuardReport, GuardStart, ShimStart, ToGuard,
};

/// An exec spec, the claim lock, and a descriptor to keep.
const DESCRIPTORS_MAX: usize = 3;

pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        flags,
        None,
    )?)
}

/// Maximum length of a record. The longest has some 350 bytes.
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

/// Encodes and decodes a record, so that the code for it has run once.
pub(super) fn rehearse<R: Serialize + DeserializeOwned>(record: &R) {
    let mut bytes = [0; LENGTH_MAX];
    let decoded = encode(record, &mut bytes).map(|encoded| decode::<R>(encoded).is_some());
    let _ = std::hint::black_box(decoded);
}

/// Sends a record. Returns `false` if there is no room now.
pub(super) fn post(socket: BorrowedFd<'_>, record: &impl Serialize) -> io::Result<bool> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    match send(socket, encode(record, &mut [0; LENGTH_MAX])?, flags) {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN | Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The result of one read from a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Received<R> {
    Record(R),
    /// Nothing to read now.
    Nothing,
    /// The other end is closed, and everything that it sent has been read.
    Closed,
}

pub(super) fn take<R: DeserializeOwned>(socket: BorrowedFd<'_>) -> Received<R> {
    let mut bytes = [0; LENGTH_MAX];
    loop {
        // With TRUNC, the length of a record that is too long is its own.
        match recv(socket, &mut bytes, RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
            Ok((_, length @ 1..=LENGTH_MAX)) => {
                return decode(&bytes[..length]).map_or(Received::Closed, Received::Record);
            }
            Err(Errno::AGAIN) => return Received::Nothing,
            // The other end was closed with records of ours unread; its own records can still be
            // read after this error.
            Err(Errno::INTR | Errno::CONNRESET) => {}
            // End of file, another error, or a record that is too long. Our peers send neither of the
            // last two, nor another text; a peer that does is treated as gone.
            Ok(_) | Err(_) => return Received::Closed,
        }
    }
}

/// Sends a record with descriptors to a receiver with few unread records, so there is room.
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

/// A record, and the descriptors that came with it.
pub(super) type With<R> = (R, [Option<OwnedFd>; DESCRIPTORS_MAX]);

/// Waits for a record with descriptors; returns `None` if the other end is closed.
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
        // A descriptor that found no room, at the limit of open files, would be missed.
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

#[cfg(test)]
mod tests;
