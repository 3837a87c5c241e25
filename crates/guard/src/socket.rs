//! The Unix socket on which a daemon accepts attached guards, in a volume that both containers
//! mount.
//!
//! A guard connects, and identifies itself. The daemon serves one guard at a time. Another guard
//! waits until the daemon has proof that the previous command is gone. Each connection serves one
//! command, so an order never reaches a later command.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram as StdUnixDatagram, UnixListener as StdUnixListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{SocketAddrUnix, bind, connect, listen};
use rustix::time::Timespec;
use tokio::net::{UnixDatagram, UnixListener};
use tokio::time::timeout;

use super::process::GuardProcess;
use super::survivors::namespace;
use super::wire::{GuardHello, wait_with};
use super::{Command, StandbyGuard};
use leasehold_core::election::BootTime;

/// Maximum time from a connection to the guard's first record, which the guard sends immediately.
const HELLO_WITHIN: Duration = Duration::from_millis(250);

/// Pause after a refusal, because some errors, such as too many open files, recur immediately.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);

/// Maximum length of a path that the kernel accepts for a socket.
const PATH_MAX: usize = 107;

/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 8;

/// Permissions of the socket. Any user who may enter the socket's directory may connect.
const MODE: u32 = 0o666;

/// A socket on which a daemon waits for a guard.
#[derive(Debug)]
pub struct GuardSocket {
    listener: UnixListener,
    path: PathBuf,
}

/// The reason why a socket cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The path is longer than the kernel permits for a socket.
    #[error("the path has more than {PATH_MAX} bytes; to fix: choose a shorter path")]
    TooLong,
    /// The path belongs to a file that is not a socket.
    #[error("a file that is not a socket has this path; to fix: choose another path")]
    NotASocket,
    /// A daemon listens on the socket.
    #[error("another leasehold listens on it; to fix: give each daemon a socket of its own")]
    InUse,
    /// The socket cannot be created.
    #[error("{0}; to fix: create the directory, for example as the mount of a volume")]
    Io(#[from] io::Error),
}

/// Removes the socket of a daemon that has exited.
fn remove_abandoned(path: &Path) -> Result<(), BindError> {
    let probe = super::wire::socket()?;
    match connect(&probe, &SocketAddrUnix::new(path).map_err(io::Error::from)?) {
        // The queue of a busy daemon may be full.
        Ok(()) | Err(Errno::AGAIN) => Err(BindError::InUse),
        Err(_) => Ok(std::fs::remove_file(path)?),
    }
}

/// The reason why a connection was refused.
#[derive(Debug, thiserror::Error)]
pub enum RefusedGuard {
    /// The connection could not be accepted, or its first record could not be read.
    #[error("cannot read from the guard: {0}")]
    Unreadable(#[from] io::Error),
    /// The guard belongs to a release of leasehold whose messages this daemon does not understand.
    #[error(
        "the guard belongs to another release; to fix: install the program of this daemon's image into \
         the volume of the workload (leasehold install)"
    )]
    OtherRelease,
    /// The guard is in another network namespace.
    #[error(
        "the guard is in another network namespace, and thus in another pod; to fix: use one \
         volume for each pod, and one socket for each daemon; with Docker, let both containers \
         share one network (network_mode: service:NAME)"
    )]
    OtherPod,
    /// The guard is in another time namespace, so its clock may differ from the daemon's.
    #[error(
        "the guard is in another time namespace; to fix: use one time namespace for both containers"
    )]
    OtherClock,
}

impl GuardSocket {
    /// Listens on `path`. Replaces the socket of a daemon that has exited; the caller must hold the
    /// lock of the status directory. Must be called inside a tokio runtime.
    pub fn bind(path: &Path) -> Result<Self, BindError> {
        if path.as_os_str().len() > PATH_MAX {
            return Err(BindError::TooLong);
        }
        match std::fs::symlink_metadata(path) {
            Ok(found) if found.file_type().is_socket() => remove_abandoned(path)?,
            Ok(_) => return Err(BindError::NotASocket),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        let socket = super::wire::socket()?;
        bind(
            &socket,
            &SocketAddrUnix::new(path).map_err(io::Error::from)?,
        )
        .map_err(io::Error::from)?;
        // Sets the mode by descriptor and not by name, because the workload may be able to replace
        // the file with a symbolic link.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = open(path, flags, Mode::empty()).map_err(io::Error::from)?;
        let by_descriptor = format!("/proc/self/fd/{}", file.as_raw_fd());
        std::fs::set_permissions(by_descriptor, std::fs::Permissions::from_mode(MODE))?;
        listen(&socket, BACKLOG).map_err(io::Error::from)?;
        Ok(Self {
            // tokio has no type for SOCK_SEQPACKET, and accepting connections works the same way
            // for all types.
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
    pub async fn accept(self: &Arc<Self>, command: &Command) -> Result<StandbyGuard, RefusedGuard> {
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

    /// Accepts one guard. Pauses after a refusal.
    pub(super) async fn connected(&self) -> Result<Connected, RefusedGuard> {
        let connected = self.next().await;
        if connected.is_err() {
            tokio::time::sleep(REFUSED_PAUSE).await;
        }
        connected
    }

    async fn next(&self) -> Result<Connected, RefusedGuard> {
        loop {
            let connected = self.accepted().await?;
            // A guard may have ended while its connection waited.
            if !connected.has_ended()? {
                return Ok(connected);
            }
        }
    }

    async fn accepted(&self) -> Result<Connected, RefusedGuard> {
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
            return Err(RefusedGuard::OtherRelease);
        }
        if hello.time_namespace != namespace("time") {
            return Err(RefusedGuard::OtherClock);
        }
        if hello.network_namespace != namespace("net") {
            return Err(RefusedGuard::OtherPod);
        }
        Ok(Connected {
            socket,
            pidfd,
            ended: hello.ended,
        })
    }
}

/// For tests: connects as a waiting guard of the container whose process 1 is this child.
#[cfg(any(test, feature = "stand-in"))]
pub fn stand_in_guard(path: &Path, process_1: &std::process::Child) -> io::Result<OwnedFd> {
    let guard = super::wire::socket()?;
    connect(&guard, &SocketAddrUnix::new(path)?)?;
    let process_1 = rustix::process::Pid::from_child(process_1);
    let pidfd = rustix::process::pidfd_open(process_1, rustix::process::PidfdFlags::empty())?;
    let hello = GuardHello {
        protocol: GuardHello::PROTOCOL,
        network_namespace: namespace("net"),
        time_namespace: namespace("time"),
        ended: None,
    };
    super::wire::post_with(guard.as_fd(), &hello, &[pidfd.as_fd()])?;
    Ok(guard)
}

/// A guard that has identified itself.
pub(super) struct Connected {
    socket: OwnedFd,
    pidfd: OwnedFd,
    /// The `session` of this guard's last command, which has ended.
    pub(super) ended: Option<BootTime>,
}

impl Connected {
    /// Returns true if the guard has exited or closed its connection. A waiting guard sends nothing.
    fn has_ended(&self) -> io::Result<bool> {
        let mut ends = [
            PollFd::new(&self.socket, PollFlags::IN),
            PollFd::new(&self.pidfd, PollFlags::IN),
        ];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        Ok(retry_on_intr(|| poll(&mut ends, Some(&now)))? > 0)
    }
}

#[cfg(test)]
mod tests;
