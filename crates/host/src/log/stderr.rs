//! Writes lines to standard error. While standard error is full, lines are dropped and counted. The
//! only buffer is the kernel's: 64 KiB for a pipe, about 300 lines.

use std::borrow::Cow;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::sink::Sink;

/// The destination of log lines, with the number of lines lost.
pub struct Stderr {
    sink: Sink,
    /// True if the end of a line was dropped. The next line then starts with a line break.
    torn: AtomicBool,
    lost: AtomicU64,
    on_loss: OnceLock<Box<dyn Fn(u64) + Send + Sync>>,
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

    /// Registers a callback for the number of lines dropped because standard error was not read
    /// fast enough. The first call is immediate, with the number dropped so far.
    pub fn on_loss(&self, count: impl Fn(u64) + Send + Sync + 'static) {
        count(self.lost.load(Ordering::Relaxed));
        // A process registers one callback, because it has one metrics registry.
        let _ = self.on_loss.set(Box::new(count));
    }

    /// Writes a line, or drops the part that does not fit.
    pub fn write_line(&self, line: &[u8]) {
        let line = match self.torn.load(Ordering::Relaxed) {
            true => Cow::Owned([b"\n", line].concat()),
            false => Cow::Borrowed(line),
        };
        let mut rest = &*line;
        if self.sink.write(&mut rest).is_ok() {
            self.torn.store(false, Ordering::Relaxed);
            return;
        }
        if rest.len() < line.len() {
            self.torn.store(true, Ordering::Relaxed);
        }
        self.lost.fetch_add(1, Ordering::Relaxed);
        if let Some(count) = self.on_loss.get() {
            count(1);
        }
    }
}

impl io::Write for &Stderr {
    /// The log passes one complete line per call.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.write_line(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
