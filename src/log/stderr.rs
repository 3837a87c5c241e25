//! Standard error that never blocks on its reader.
//!
//! A full pipe blocks the writer, and here the writer is the event loop that renews the lease.
//! Lines for which the reader has no room are dropped and counted. The queue is the kernel's
//! buffer: 64 KiB for a pipe, some 300 lines.

use std::io::{self, IsTerminal};
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

/// Number of bytes that a writable pipe accepts in one write without blocking (PIPE_BUF).
const PIECE_MAX: usize = 4096;

/// The destination of log lines, with the number of lines lost.
pub(super) struct Stderr {
    sink: Sink,
    /// True if the end of a line was dropped. The next line then starts with a line break.
    torn: AtomicBool,
    lost: AtomicU64,
    on_loss: OnceLock<Box<dyn Fn(u64) + Send + Sync>>,
}

/// Method of writing without blocking.
enum Sink {
    /// A pipe or a terminal, opened a second time. O_NONBLOCK belongs to the open file description,
    /// and the inherited one is shared with other processes, which do not expect it.
    Reopened(OwnedFd),
    /// A socket of journald, on which each call can be made non-blocking.
    Socket,
    /// A file, or anything that cannot be reopened; written only if poll reports it writable.
    /// Another writer on the same pipe could fill it in between and make this one block.
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
            sink: Sink::find(),
            torn: AtomicBool::new(false),
            lost: AtomicU64::new(0),
            on_loss: OnceLock::new(),
        }
    }

    /// Registers a callback for the number of further lines dropped. The first call, made
    /// immediately, passes the number dropped so far.
    pub(super) fn on_loss(&self, count: impl Fn(u64) + Send + Sync + 'static) {
        count(self.lost.load(Ordering::Relaxed));
        // A process has one log and one metrics registry.
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
            match self.sink.write(rest) {
                Ok(written) if written > 0 => rest = &rest[written..],
                Err(Errno::INTR) => {}
                Ok(_) | Err(_) if rest.len() < line.len() => return Written::Some,
                Ok(_) | Err(_) => return Written::Nothing,
            }
        }
        Written::All
    }
}

impl Sink {
    fn find() -> Self {
        let inherited = io::stderr();
        let kind = fstat(&inherited).map(|stat| FileType::from_raw_mode(stat.st_mode));
        match kind {
            Ok(FileType::Socket) => Self::Socket,
            Ok(kind) if kind == FileType::Fifo || inherited.is_terminal() => {
                let how = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
                // Fails without /proc, or if the pipe belongs to another user.
                open("/proc/self/fd/2", how, Mode::empty()).map_or(Self::WhenReady, Self::Reopened)
            }
            Ok(_) | Err(_) => Self::WhenReady,
        }
    }

    fn write(&self, bytes: &[u8]) -> rustix::io::Result<usize> {
        match self {
            Self::Reopened(fd) => rustix::io::write(fd, bytes),
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
    /// Writes one whole line per call, as the log passes them.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.write_line(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
