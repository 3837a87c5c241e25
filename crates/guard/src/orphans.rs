//! Reaps orphans: descendants of a CMD whose guard was lost, or all orphans of process 1.

use std::convert::Infallible;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, getpid, set_child_subreaper};
use signal_hook::consts::SIGCHLD;

use super::children::{Children, reap};
use super::groups::{group_of, own_group, own_session, session_of};
use super::signal_pipe::SignalPipe;

/// Guards and leaders, which a [`super::GuardedCommand`] reaps itself.
static WAITED_FOR: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

fn waited_for() -> MutexGuard<'static, Vec<Pid>> {
    WAITED_FOR.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The owner of this value reaps the child. The child is registered until this value is dropped.
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

pub(super) fn adopt() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Reaps every child that has exited, except guards and leaders, whose workload reaps them.
fn reap_unowned() {
    // A child that cannot be listed now is found when the next child exits.
    let _ = Children::new().each(|child| {
        // The lock is held until after the wait, so that no child is registered between the check
        // and the wait.
        let known = waited_for();
        if !known.contains(&child) {
            reap(child);
        }
    });
}

/// Reaps orphans for a daemon that adopts all orphans. A program with other children must not use
/// this type, because it would lose their exit codes.
#[derive(Debug)]
pub struct Orphans {
    child_ended: SignalPipe,
    unlisted: bool,
}

impl Orphans {
    /// Adopts orphaned descendants from now on. Must be called inside a tokio runtime.
    pub fn adopt() -> io::Result<Self> {
        adopt()?;
        Ok(Self {
            child_ended: SignalPipe::listen(SIGCHLD)?,
            unlisted: true,
        })
    }

    /// Reaps orphans until the event loop is gone. Cancel safe.
    pub async fn reap(&mut self) -> io::Result<Infallible> {
        loop {
            if std::mem::take(&mut self.unlisted) {
                reap_unowned();
            }
            self.child_ended.arrived().await?;
            self.unlisted = true;
        }
    }
}

/// Calls `visit` for every adopted child that no [`super::GuardedCommand`] owns. Skips the
/// program's own children. Unlike CMD, these share the program's process group or, without a
/// terminal, its session.
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
