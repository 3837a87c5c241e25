//! Standard error, without ever waiting for whoever reads it.
//!
//! A full pipe makes a writer wait, and here the writer is the event loop that
//! renews the lease. What the reader has no room for is dropped and counted.
//! The kernel's buffer is the queue: 64 KiB of a pipe, some 300 lines.

use std::io::{self, IsTerminal};
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

/// What a pipe that is ready takes at once (PIPE_BUF).
const PIECE_MAX: usize = 4096;

/// Where lines go, and how many could not.
pub(super) struct Stderr {
    way: Way,
    /// The end of a line was dropped: the next one begins on a line of its own.
    torn: AtomicBool,
    lost: AtomicU64,
    on_loss: OnceLock<Box<dyn Fn(u64) + Send + Sync>>,
}

/// How to write without waiting.
enum Way {
    /// A pipe or a terminal, opened once more. O_NONBLOCK belongs to an open
    /// file, and the one that was inherited is shared with other processes,
    /// which do not expect it.
    OwnOpening(OwnedFd),
    /// journald's: here each call can say that it does not wait.
    Socket,
    /// A file, or what cannot be opened again: written to when it says that it
    /// is ready. Another writer on the same pipe could be faster and make this
    /// one wait.
    WhenReady,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    All,
    Some,
    Nothing,
}

impl Stderr {
    pub(super) fn open() -> Self {
        Self {
            way: Way::find(),
            torn: AtomicBool::new(false),
            lost: AtomicU64::new(0),
            on_loss: OnceLock::new(),
        }
    }

    /// From now on `count` is told how many more lines were dropped; first,
    /// how many were so far.
    pub(super) fn on_loss(&self, count: impl Fn(u64) + Send + Sync + 'static) {
        count(self.lost.load(Ordering::Relaxed));
        // There is one log and one registry in a process.
        let _ = self.on_loss.set(Box::new(count));
    }

    fn write_line(&self, line: &[u8]) {
        let written = if self.torn.load(Ordering::Relaxed) {
            self.write_up_to_full(&[b"\n", line].concat())
        } else {
            self.write_up_to_full(line)
        };
        match written {
            Written::All => self.torn.store(false, Ordering::Relaxed),
            Written::Some => self.torn.store(true, Ordering::Relaxed),
            Written::Nothing => {}
        }
        if written != Written::All {
            self.lost.fetch_add(1, Ordering::Relaxed);
            if let Some(count) = self.on_loss.get() {
                count(1);
            }
        }
    }

    fn write_up_to_full(&self, line: &[u8]) -> Written {
        let mut rest = line;
        while !rest.is_empty() {
            match self.way.write(rest) {
                Ok(written) if written > 0 => rest = &rest[written..],
                Err(Errno::INTR) => {}
                Ok(_) | Err(_) if rest.len() < line.len() => return Written::Some,
                Ok(_) | Err(_) => return Written::Nothing,
            }
        }
        Written::All
    }
}

impl Way {
    fn find() -> Self {
        let inherited = io::stderr();
        let kind = fstat(&inherited).map(|stat| FileType::from_raw_mode(stat.st_mode));
        match kind {
            Ok(FileType::Socket) => Self::Socket,
            Ok(kind) if kind == FileType::Fifo || inherited.is_terminal() => {
                let how = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
                // Fails without /proc, or where the pipe is another user's.
                open("/proc/self/fd/2", how, Mode::empty())
                    .map_or(Self::WhenReady, Self::OwnOpening)
            }
            Ok(_) | Err(_) => Self::WhenReady,
        }
    }

    fn write(&self, bytes: &[u8]) -> rustix::io::Result<usize> {
        match self {
            Self::OwnOpening(fd) => rustix::io::write(fd, bytes),
            Self::Socket => {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                send(io::stderr(), bytes, flags)
            }
            Self::WhenReady => {
                let inherited = io::stderr();
                let mut ready = [PollFd::new(&inherited, PollFlags::OUT)];
                let at_once = Timespec {
                    tv_sec: 0,
                    tv_nsec: 0,
                };
                if poll(&mut ready, Some(&at_once))? == 0 {
                    return Err(Errno::AGAIN);
                }
                rustix::io::write(&inherited, &bytes[..bytes.len().min(PIECE_MAX)])
            }
        }
    }
}

impl io::Write for &Stderr {
    /// Takes one whole line at a time, as the log gives them.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.write_line(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
