//! The daemon's side of an attached guard: a Unix socket in a volume that both containers mount.
//!
//! A guard connects, and identifies itself. The daemon serves one guard at a time: another guard
//! waits until the daemon has proof that the previous command is gone. Each connection is used for
//! one command, so an order never reaches the guard of a later command.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram as StdUnixDatagram, UnixListener as StdUnixListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{SocketAddrUnix, bind, listen};
use tokio::net::{UnixDatagram, UnixListener};
use tokio::time::timeout;

use super::process::GuardProcess;
use super::survivors::namespace;
use super::wire::{GuardHello, wait_with};
use super::{Command, StandbyGuard};
use leasehold_core::election::BootTime;

/// Maximum time from a connection to the guard's first record, which the guard sends immediately.
const HELLO_WITHIN: Duration = Duration::from_secs(1);

/// Connections that wait to be accepted.
const BACKLOG: i32 = 8;

/// Any user of the pod's containers may connect. The directory restricts access.
const MODE: u32 = 0o666;

/// A socket on which a daemon waits for a guard.
#[derive(Debug)]
pub struct GuardSocket {
    listener: UnixListener,
    path: PathBuf,
}

/// The reason why a connection was refused.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The connection could not be accepted, or its first record not read.
    #[error("cannot read from the guard: {0}")]
    Unreadable(#[from] io::Error),
    /// The guard belongs to another release of leasehold.
    #[error(
        "the guard is of another release; to fix: install the program of this daemon's image into \
         the volume of the workload (leasehold install)"
    )]
    OtherRelease,
    /// The guard is in another network namespace.
    #[error(
        "the guard is in another pod; to fix: use one volume for each pod, and one socket for each \
         daemon"
    )]
    OtherPod,
}

impl GuardSocket {
    /// Listens on `path`. Replaces the socket of a daemon that has exited; the caller must hold the
    /// lock of the status directory. Must be called inside a tokio runtime.
    pub fn bind(path: &Path) -> io::Result<Self> {
        match std::fs::symlink_metadata(path) {
            Ok(found) if found.file_type().is_socket() => std::fs::remove_file(path)?,
            Ok(_) => return Err(io::ErrorKind::AlreadyExists.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let socket = super::wire::socket()?;
        bind(&socket, &SocketAddrUnix::new(path)?)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(MODE))?;
        listen(&socket, BACKLOG)?;
        Ok(Self {
            // Accepting connections does not depend on the type of the socket.
            listener: UnixListener::from_std(StdUnixListener::from(socket))?,
            path: path.to_owned(),
        })
    }

    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for a guard, which will run its own command with the environment and the options of
    /// `command`. If this call is cancelled, a connecting guard connects again.
    pub async fn accept(self: &Arc<Self>, command: &Command) -> Result<StandbyGuard, Refused> {
        let Connected { socket, pidfd, .. } = self.connected().await?;
        Ok(StandbyGuard {
            command: command.clone(),
            socket,
            guard: GuardProcess::attached(pidfd),
            terminal: None,
            kept: None,
            socket_of_guard: Some(Arc::clone(self)),
        })
    }

    pub(super) async fn connected(&self) -> Result<Connected, Refused> {
        let (connection, _) = self.listener.accept().await?;
        let connection = StdUnixDatagram::from(OwnedFd::from(connection.into_std()?));
        let connection = UnixDatagram::from_std(connection)?;
        let readable = timeout(HELLO_WITHIN, connection.readable()).await;
        readable.map_err(io::Error::from)??;
        let socket = OwnedFd::from(connection.into_std()?);
        let Some((hello, [Some(pidfd), None, None])) = wait_with::<GuardHello>(socket.as_fd())?
        else {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        };
        if hello.protocol != GuardHello::PROTOCOL {
            return Err(Refused::OtherRelease);
        }
        if hello.network_namespace != namespace("net") {
            return Err(Refused::OtherPod);
        }
        Ok(Connected {
            socket,
            pidfd,
            ended: hello.ended,
        })
    }
}

/// A guard that has identified itself.
pub(super) struct Connected {
    socket: OwnedFd,
    pidfd: OwnedFd,
    /// The newest command of this guard, which is gone.
    pub(super) ended: Option<BootTime>,
}

#[cfg(test)]
mod tests;
