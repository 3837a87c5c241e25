//! The claim file's records of the processes that run under the claim.
//!
//! A free lock does not prove that CMD is gone. The kernel frees the lock of a killed guard before
//! it ends CMD, and does not end CMD at all if CMD changed its user. Therefore each process records
//! itself before it becomes CMD, the guard records the end of CMD before it releases the lock, and
//! the next owner of the lock first reads these records. Each guard overwrites its own place, which
//! has a fixed length, without allocating.

use std::io;
use std::num::ParseIntError;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::{pread, pwrite};
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::stack_text::padded;
use super::survivors::ProcessId;

/// Offset of the first place, after the record of the daemon.
pub const PLACES_BEGIN: usize = 512;
/// Length of a place. All places are in the file's first page, so a kill cannot tear a write.
const PLACE_LENGTH: usize = 96;
/// Length of the claim file in bytes.
pub const FILE_LENGTH: usize = PLACES_BEGIN + ClaimPlace::ALL.len() * PLACE_LENGTH;

/// A guard's place in the claim file, named after the command that the guard runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClaimPlace {
    /// The guard of the command.
    Command,
    /// The guard of the hook on_lead.
    OnLead,
    /// The guard of the hook on_step_down.
    OnStepDown,
}

impl ClaimPlace {
    /// All places, in file order.
    pub const ALL: [Self; 3] = [Self::Command, Self::OnLead, Self::OnStepDown];

    fn begin(self) -> usize {
        PLACES_BEGIN + self as usize * PLACE_LENGTH
    }
}

/// The state of a guard's child, as the claim file records it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Child {
    /// Nothing was started under the claim.
    None,
    /// The process may have been started, and has not been confirmed gone.
    Running(ProcessId),
    /// The process and all its descendants were confirmed gone.
    Gone,
    /// The record cannot be read.
    Unreadable,
}

/// Assigns each place of a claim file to one guard at a time, because a guard that is blocked by a
/// hanging disk may still write to its place later.
#[derive(Debug)]
pub struct ClaimShares {
    file: OwnedFd,
    free: [Arc<Semaphore>; ClaimPlace::ALL.len()],
}

impl ClaimShares {
    /// Creates the shares of a locked claim file.
    pub fn new(file: OwnedFd) -> Self {
        let free = std::array::from_fn(|_| Arc::new(Semaphore::new(1)));
        Self { file, free }
    }

    /// Returns a share of a place once its previous guard has exited. Fails with
    /// [`io::ErrorKind::ResourceBusy`] after `patience`, or if no descriptor is free.
    pub async fn share(&self, place: ClaimPlace, patience: Duration) -> io::Result<ClaimShare> {
        let free = Arc::clone(&self.free[place as usize]).acquire_owned();
        let Ok(Ok(turn)) = timeout(patience, free).await else {
            return Err(io::ErrorKind::ResourceBusy.into());
        };
        let mut share = ClaimShare::new(self.file.try_clone()?, place);
        share.turn = Some(Arc::new(turn));
        Ok(share)
    }
}

/// A guard's share of the claim file: the lock, and one place.
#[derive(Debug)]
pub struct ClaimShare {
    file: OwnedFd,
    place: ClaimPlace,
    /// Keeps other guards out of the place until all copies of the share are dropped.
    turn: Option<Arc<OwnedSemaphorePermit>>,
}

impl ClaimShare {
    /// Creates a share from a handle on the locked claim file.
    pub fn new(file: OwnedFd, place: ClaimPlace) -> Self {
        Self {
            file,
            place,
            turn: None,
        }
    }

    /// Duplicates the handle. Fails if no descriptor is free.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            file: self.file.try_clone()?,
            place: self.place,
            turn: self.turn.clone(),
        })
    }

    pub(super) fn place(&self) -> ClaimPlace {
        self.place
    }

    /// Writes the state of the child. Not synced, because the state proves nothing after a reboot.
    pub fn write(&self, child: Child) -> io::Result<()> {
        let begin = self.place.begin() as u64;
        match pwrite(&self.file, &text(child), begin)? {
            PLACE_LENGTH => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }
}

impl AsFd for ClaimShare {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Reads all places of a claim file. The caller must hold the file's lock.
pub fn children(file: impl AsFd) -> io::Result<[Child; 3]> {
    let mut children = [Child::Unreadable; 3];
    for (child, place) in children.iter_mut().zip(ClaimPlace::ALL) {
        let mut bytes = [0; PLACE_LENGTH];
        let length = pread(&file, &mut bytes, place.begin() as u64)?;
        *child = read(&bytes[..length]);
    }
    Ok(children)
}

/// Returns the bytes of all places for a claim that has not started any command.
pub fn no_children() -> [u8; FILE_LENGTH - PLACES_BEGIN] {
    let none = text(Child::None);
    std::array::from_fn(|index| none[index % PLACE_LENGTH])
}

fn text(child: Child) -> [u8; PLACE_LENGTH] {
    let mut bytes: [u8; PLACE_LENGTH] = match child {
        Child::None => padded(b' ', format_args!("none")),
        Child::Gone => padded(b' ', format_args!("gone")),
        Child::Unreadable => padded(b' ', format_args!("unknown")),
        Child::Running(ProcessId {
            pid,
            started,
            pid_namespace,
            time_namespace,
            session,
        }) => {
            let text =
                format_args!("running {pid} {started} {pid_namespace} {time_namespace} {session}");
            padded(b' ', text)
        }
    };
    bytes[PLACE_LENGTH - 1] = b'\n';
    bytes
}

fn read(bytes: &[u8]) -> Child {
    let whole = bytes.len() == PLACE_LENGTH && bytes.ends_with(b"\n");
    let text = std::str::from_utf8(bytes).ok().filter(|_| whole);
    let words: Vec<_> = text.unwrap_or_default().split_ascii_whitespace().collect();
    match words.as_slice() {
        ["none"] => Child::None,
        ["gone"] => Child::Gone,
        // An earlier version did not record the session.
        [
            "running",
            pid,
            started,
            pid_namespace,
            time_namespace,
            session @ ..,
        ] if session.len() <= 1 => {
            let process = || {
                Ok::<_, ParseIntError>(ProcessId {
                    pid: pid.parse()?,
                    started: started.parse()?,
                    pid_namespace: pid_namespace.parse()?,
                    time_namespace: time_namespace.parse()?,
                    session: session.first().map_or(Ok(0), |session| session.parse())?,
                })
            };
            process().map_or(Child::Unreadable, Child::Running)
        }
        _ => Child::Unreadable,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use super::*;

    fn longest() -> ProcessId {
        ProcessId {
            pid: i32::MAX,
            started: u64::MAX,
            pid_namespace: u64::MAX,
            time_namespace: u64::MAX,
            session: i32::MAX,
        }
    }

    #[test]
    fn each_guard_writes_into_its_own_place() {
        let file = tempfile::tempfile().expect("a file");
        let share = |place| ClaimShare::new(file.try_clone().expect("a handle").into(), place);
        file.write_all_at(&no_children(), PLACES_BEGIN as u64)
            .expect("written");
        assert_eq!(children(&file).expect("read"), [Child::None; 3]);
        let running = Child::Running(longest());
        share(ClaimPlace::OnLead).write(running).expect("written");
        share(ClaimPlace::Command)
            .write(Child::Gone)
            .expect("written");
        let expected = [Child::Gone, running, Child::None];
        assert_eq!(children(&file).expect("read"), expected);
        let length = file.metadata().expect("an open file").len();
        assert_eq!(length, FILE_LENGTH as u64);
    }

    #[tokio::test]
    async fn a_place_is_shared_with_one_guard_at_a_time() {
        let shares = ClaimShares::new(tempfile::tempfile().expect("a file").into());
        let moment = Duration::from_millis(20);
        let first = shares
            .share(ClaimPlace::Command, moment)
            .await
            .expect("free");
        let copy = first.try_clone().expect("a handle");
        drop(first);
        let second = shares.share(ClaimPlace::Command, moment).await;
        let error = second.expect_err("the copy still has the place");
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
        let another = shares.share(ClaimPlace::OnLead, moment).await;
        assert!(another.is_ok(), "another place");
        drop(copy);
        assert!(shares.share(ClaimPlace::Command, moment).await.is_ok());
    }

    #[test]
    fn torn_truncated_or_invalid_files_cannot_be_read() {
        let place = |text: &str| {
            let file = tempfile::tempfile().expect("a file");
            file.write_all_at(text.as_bytes(), PLACES_BEGIN as u64)
                .expect("written");
            first(&file)
        };
        fn first(file: &File) -> Child {
            children(file).expect("read")[0]
        }
        let whole = String::from_utf8(text(Child::Gone).to_vec()).expect("text");
        assert_eq!(place(&whole), Child::Gone);
        let half = &whole[..PLACE_LENGTH / 2];
        let zeros = "\0".repeat(PLACE_LENGTH);
        let running = format!("{:95}\n", "running 12");
        let other = format!("{:95}\n", "running 1 2 3 x");
        for damaged in ["", half, &zeros, &running, &other] {
            assert_eq!(place(damaged), Child::Unreadable, "{damaged:?}");
        }
    }
}
