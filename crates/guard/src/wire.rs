//! The messages between daemon, guard and shim: records of fixed length over SOCK_SEQPACKET, which
//! preserves record boundaries. [`records`] defines their content.
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

pub(super) use self::records::{
    CommandStage, GuardBegin, GuardReport, GuardStart, LeaderEnd, ShimFailed, ShimStart, ToGuard,
};

/// An exec spec, the claim lock, and a descriptor to keep.
const DESCRIPTORS_MAX: usize = 3;

/// Creates a connected pair. Neither end is inherited.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        flags,
        None,
    )?)
}

/// All records have the same length: ten words of 64 bits, little-endian.
const WORDS: usize = 10;
const LENGTH: usize = WORDS * 8;

/// The words of a record, put or taken one after the other.
#[derive(Default)]
pub(super) struct Words {
    words: [u64; WORDS],
    next: usize,
}

impl Words {
    fn put(&mut self, word: u64) {
        self.words[self.next] = word;
        self.next += 1;
    }

    fn take(&mut self) -> u64 {
        self.next += 1;
        self.words[self.next - 1]
    }
}

/// A record, or a field of one, that can be converted to and from words.
pub(super) trait WireRecord: Sized {
    fn put(&self, words: &mut Words);
    fn take(words: &mut Words) -> Self;
}

fn encode(record: &impl WireRecord) -> [u8; LENGTH] {
    let mut words = Words::default();
    record.put(&mut words);
    let mut bytes = [0; LENGTH];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words.words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn decode<R: WireRecord>(bytes: [u8; LENGTH]) -> R {
    let mut words = Words::default();
    for (word, place) in words.words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_le_bytes(*place);
    }
    R::take(&mut words)
}

/// Sends a record. Returns `false` if there is no room now.
pub(super) fn post(socket: BorrowedFd<'_>, record: &impl WireRecord) -> io::Result<bool> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    match send(socket, &encode(record), flags) {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN | Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The result of one read from a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Received<R> {
    /// A record.
    Record(R),
    /// Nothing to read now.
    Nothing,
    /// The other end is closed, and everything that it sent has been read.
    Closed,
}

/// Receives the next record.
pub(super) fn take<R: WireRecord>(socket: BorrowedFd<'_>) -> Received<R> {
    let mut bytes = [0; LENGTH];
    loop {
        // With TRUNC, the length of a record that is longer than ours is its own.
        match recv(socket, &mut bytes, RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
            Ok((_, LENGTH)) => return Received::Record(decode(bytes)),
            Err(Errno::AGAIN) => return Received::Nothing,
            // The other end was closed with records of ours unread; its own records can still be
            // read after this error.
            Err(Errno::INTR | Errno::CONNRESET) => {}
            // End of file, another error, or a record of another length. Our peers send none of
            // these; a peer that does is treated as gone.
            Ok(_) | Err(_) => return Received::Closed,
        }
    }
}

/// Sends a record with descriptors to a receiver with few unread records, so there is room.
pub(super) fn post_with(
    socket: BorrowedFd<'_>,
    record: &impl WireRecord,
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

/// A record, and the descriptors that came with it.
pub(super) type With<R> = (R, [Option<OwnedFd>; DESCRIPTORS_MAX]);

/// Waits for a record with descriptors; returns `None` if the other end is closed.
pub(super) fn wait_with<R: WireRecord>(socket: BorrowedFd<'_>) -> io::Result<Option<With<R>>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; LENGTH];
    let mut parts = [IoSliceMut::new(&mut bytes)];
    retry_on_intr(|| poll(&mut [PollFd::new(&socket, PollFlags::IN)], None))?;
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    match recvmsg(socket, &mut parts, &mut ancillary, flags) {
        // A descriptor that found no room, at the limit of open files, would be missed.
        Ok(message) if message.flags.contains(ReturnFlags::CTRUNC) => {
            return Err(Errno::MFILE.into());
        }
        Ok(message) if message.flags.contains(ReturnFlags::TRUNC) => {
            return Err(Errno::PROTO.into());
        }
        Ok(message) if message.bytes == LENGTH => {}
        Ok(message) if message.bytes > 0 => return Err(Errno::PROTO.into()),
        Ok(_) | Err(Errno::CONNRESET) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let mut descriptors = [const { None }; DESCRIPTORS_MAX];
    let received = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        _ => None,
    });
    for (place, descriptor) in descriptors.iter_mut().zip(received.flatten()) {
        *place = Some(descriptor);
    }
    Ok(Some((decode(bytes), descriptors)))
}

#[cfg(test)]
mod tests;
