//! Processes that nobody else waits for: descendants of CMD whose guard was
//! killed, and, where the daemon is process 1 of a container, everybody's.

use std::convert::Infallible;
use std::io;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, WaitId, WaitIdOptions, getpid, set_child_subreaper, waitid};
use signal_hook::consts::SIGCHLD;
use signal_hook::low_level::pipe;
use tokio::net::UnixStream;

use super::children::Children;
use super::groups::{group_of, own_group, own_session, session_of};

/// Children that a [`super::Workload`] waits for itself: a guard and a leader each.
static WAITED_FOR: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

fn waited_for() -> MutexGuard<'static, Vec<Pid>> {
    WAITED_FOR.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A child of ours that is waited for where it is known; until this value goes.
#[derive(Debug)]
pub(super) struct WaitedFor(Pid);

impl WaitedFor {
    pub(super) fn new(pid: Pid) -> Self {
        waited_for().push(pid);
        Self(pid)
    }

    pub(super) fn pid(&self) -> Pid {
        self.0
    }
}

impl Drop for WaitedFor {
    fn drop(&mut self) {
        waited_for().retain(|pid| *pid != self.0);
    }
}

/// Makes this process the parent of orphaned descendants.
pub(super) fn adopt() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Waits for every child that has ended, except for guards and what they left:
/// those are waited for by who started them.
fn reap() {
    // What cannot be listed now is found at the next end of a child.
    let _ = Children::new().each(|child| {
        // Held throughout, so that nobody registers a child in between.
        let known = waited_for();
        if !known.contains(&child) {
            let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            let _ = waitid(WaitId::Pid(child), ended);
        }
    });
}

/// What a daemon does as the parent of last resort: it waits for orphans, so
/// that no zombie stays. A program that starts children of its own must not
/// use this: it would lose their exit codes.
#[derive(Debug)]
pub struct Orphans {
    child_ended: UnixStream,
}

impl Orphans {
    /// Adopts orphaned descendants from now on. Inside a tokio runtime.
    ///
    /// # Errors
    /// When no descriptors are left.
    pub fn adopt() -> io::Result<Self> {
        adopt()?;
        let (reader, writer) = StdUnixStream::pair()?;
        reader.set_nonblocking(true)?;
        pipe::register(SIGCHLD, writer)?;
        Ok(Self {
            child_ended: UnixStream::from_std(reader)?,
        })
    }

    /// Waits for orphans, for ever; may be given up and called again.
    ///
    /// # Errors
    /// When the event loop is gone.
    pub async fn reap(&mut self) -> io::Result<Infallible> {
        loop {
            reap();
            self.child_ended.readable().await?;
            // One byte for each signal; it is the children that tell.
            let drained = self.child_ended.try_read(&mut [0; 256]);
            if let Err(error) = drained
                && error.kind() != io::ErrorKind::WouldBlock
            {
                return Err(error);
            }
        }
    }
}

/// Calls `visit` for every child that this process adopted, other than those
/// which a [`super::Workload`] knows.
///
/// Told from children that the program itself started by where they live: CMD
/// is outside of this process group, and without a terminal outside of this
/// session, and cannot enter either.
pub(super) fn each_adopted(on_terminal: bool, mut visit: impl FnMut(Pid)) -> io::Result<()> {
    let session = own_session();
    Children::new().each(|child| {
        let ours =
            group_of(child) == Some(own_group()) || (!on_terminal && session_of(child) == session);
        let known = waited_for().contains(&child);
        if !ours && !known {
            visit(child);
        }
    })?;
    Ok(())
}
