//! Standard output and standard error that never block on their reader, or stop this process.
//!
//! A full pipe, or a terminal whose output is suspended (Ctrl-S), blocks the writer, and here the
//! writer is the event loop that renews a lease or lock.

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

/// One of the two standard streams.
pub struct Sink {
    inherited: BorrowedFd<'static>,
    way: Way,
}

enum Way {
    /// A pipe or a terminal, opened a second time. O_NONBLOCK belongs to the open file description.
    /// The inherited description is shared with other processes, which do not expect it.
    Reopened(OwnedFd),
    /// A socket, such as journald's, on which each call can be made non-blocking.
    Socket,
    /// A file, or anything that cannot be reopened; written only if poll reports it writable.
    /// Another writer could fill the pipe in between, and this write would block.
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
        let way = match kind {
            Ok(FileType::Socket) => Way::Socket,
            Ok(kind) if kind == FileType::Fifo || inherited.is_terminal() => {
                let how = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
                // Fails without /proc, or if the pipe belongs to another user.
                open(path, how, Mode::empty()).map_or(Way::WhenReady, Way::Reopened)
            }
            Ok(_) | Err(_) => Way::WhenReady,
        };
        Self { inherited, way }
    }

    /// Writes a part of `bytes`, and returns its length.
    ///
    /// # Errors
    /// `AGAIN` if the reader has no room.
    pub fn write(&self, bytes: &[u8]) -> rustix::io::Result<usize> {
        // `stty tostop` stops a background job that writes to its terminal.
        without_background_stop(|| self.write_now(bytes))
    }

    fn write_now(&self, bytes: &[u8]) -> rustix::io::Result<usize> {
        match &self.way {
            Way::Reopened(fd) => rustix::io::write(fd, bytes),
            Way::Socket => {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                send(self.inherited, bytes, flags)
            }
            Way::WhenReady => {
                let mut ready = [PollFd::new(&self.inherited, PollFlags::OUT)];
                let at_once = Timespec {
                    tv_sec: 0,
                    tv_nsec: 0,
                };
                if poll(&mut ready, Some(&at_once))? == 0 {
                    return Err(Errno::AGAIN);
                }
                rustix::io::write(self.inherited, &bytes[..bytes.len().min(PIECE_MAX)])
            }
        }
    }
}
