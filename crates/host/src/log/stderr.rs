//! Standard error that never blocks on its reader.
//!
//! A full pipe blocks the writer, and here the writer is the event loop that renews the lease.
//! Lines that do not fit into the pipe are dropped and counted. The queue is the kernel's
//! buffer: 64 KiB for a pipe, some 300 lines.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::io::Errno;

use crate::sink::Sink;

/// The destination of log lines, with the number of lines lost.
pub struct Stderr {
    sink: Sink,
    /// True if the end of a line was dropped. The next line then starts with a line break.
    torn: AtomicBool,
    lost: AtomicU64,
    on_loss: OnceLock<Box<dyn Fn(u64) + Send + Sync>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WrittenPart {
    All,
    Some,
    Nothing,
}

impl Stderr {
    /// Opens the standard error of this process.
    pub fn open() -> Self {
        Self {
            sink: Sink::error(),
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

    /// Writes a whole line, or drops what does not fit.
    pub fn write_line(&self, line: &[u8]) {
        let written = if self.torn.load(Ordering::Relaxed) {
            self.write_up_to_full(&[b"\n", line].concat())
        } else {
            self.write_up_to_full(line)
        };
        match written {
            WrittenPart::All => self.torn.store(false, Ordering::Relaxed),
            WrittenPart::Some => self.torn.store(true, Ordering::Relaxed),
            WrittenPart::Nothing => {}
        }
        if written != WrittenPart::All {
            self.lost.fetch_add(1, Ordering::Relaxed);
            if let Some(count) = self.on_loss.get() {
                count(1);
            }
        }
    }

    fn write_up_to_full(&self, line: &[u8]) -> WrittenPart {
        let mut rest = line;
        while !rest.is_empty() {
            match self.sink.write(rest) {
                Ok(written) if written > 0 => rest = &rest[written..],
                Err(Errno::INTR) => {}
                Ok(_) | Err(_) if rest.len() < line.len() => return WrittenPart::Some,
                Ok(_) | Err(_) => return WrittenPart::Nothing,
            }
        }
        WrittenPart::All
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
