//! Standard output and standard error that never block or stop this process.
//!
//! A full pipe, or a terminal whose output is suspended (Ctrl-S), blocks its writer. In leasehold,
//! the writer is the event loop that renews a lease or lock.

use std::io::IsTerminal;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use rustix::stdio::{stderr, stdout};

use leasehold_guard::dispositions::without_background_stop;

/// Number of bytes that a writable pipe accepts in one write without blocking (PIPE_BUF).
const PIECE_MAX: usize = 4096;

/// Standard output or standard error.
pub struct Sink {
    inherited: BorrowedFd<'static>,
    method: Method,
}

enum Method {
    /// A pipe or a terminal, opened a second time. O_NONBLOCK on the inherited open file
    /// description would affect the other processes that share it.
    Reopened(OwnedFd),
    /// A socket, such as journald's, on which each call can be made non-blocking.
    Socket,
    /// A file, or any other target that cannot be reopened. Written only if poll reports it
    /// writable. The write blocks if another writer fills the pipe after the poll.
    WhenReady,
}

impl Sink {
    /// Returns standard output.
    pub fn output() -> Self {
        Self::of(stdout(), "/proc/self/fd/1")
    }

    /// Returns standard error.
    pub fn error() -> Self {
        Self::of(stderr(), "/proc/self/fd/2")
    }

    fn of(inherited: BorrowedFd<'static>, path: &str) -> Self {
        let kind = fstat(inherited).map(|stat| FileType::from_raw_mode(stat.st_mode));
        let method = match kind {
            Ok(FileType::Socket) => Method::Socket,
            Ok(kind) if kind == FileType::Fifo || inherited.is_terminal() => {
                let how = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
                // The open fails without /proc, or if the pipe belongs to another user.
                open(path, how, Mode::empty()).map_or(Method::WhenReady, Method::Reopened)
            }
            Ok(_) | Err(_) => Method::WhenReady,
        };
        Self { inherited, method }
    }

    /// Writes `rest` and removes the written part. Fails with `AGAIN` if there is no room.
    pub fn write(&self, rest: &mut &[u8]) -> rustix::io::Result<()> {
        while !rest.is_empty() {
            // With `stty tostop`, writing to the terminal would stop a background job.
            match without_background_stop(|| self.write_part(rest)) {
                Ok(0) => return Err(Errno::AGAIN),
                Ok(written) => *rest = &rest[written..],
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn write_part(&self, bytes: &[u8]) -> rustix::io::Result<usize> {
        match &self.method {
            Method::Reopened(fd) => rustix::io::write(fd, bytes),
            Method::Socket => {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                send(self.inherited, bytes, flags)
            }
            Method::WhenReady => {
                let mut ready = [PollFd::new(&self.inherited, PollFlags::OUT)];
                if poll(&mut ready, Some(&Timespec::default()))? == 0 {
                    return Err(Errno::AGAIN);
                }
                rustix::io::write(self.inherited, &bytes[..bytes.len().min(PIECE_MAX)])
            }
        }
    }
}
