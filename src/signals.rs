//! Signals as a stream. The handlers are registered before any work starts.

use std::io;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::task::Poll;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::low_level::pipe;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::UnixStream;

use crate::clock;
use crate::election::BootTime;
use crate::exit;

/// A stop signal that follows the first one within this time belongs to the same request, because
/// timeout(1) signals its child and then its process group, systemd signals every process of a
/// unit, and a supervisor forwards signals that its child received directly.
const SAME_REQUEST: Duration = Duration::from_secs(1);

/// Action that a signal requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// TERM, INT or QUIT (some images stop with QUIT): step down and exit. [`StopRequests`] decides
    /// the meaning of a second one.
    Stop,
    /// HUP: read the configuration again.
    Reload,
    /// USR1: step down and stay out for one lease duration.
    StepDown,
    /// USR2: log a full status.
    Report,
}

/// A signal that ends a command: TERM, INT, QUIT or HUP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stop(i32);

impl Stop {
    /// Returns the exit code that a shell reports for a command that this signal ended.
    pub fn exit_code(self) -> u8 {
        exit::SIGNALLED.saturating_add(u8::try_from(self.0).unwrap_or(0))
    }

    /// Returns the name of the signal, for humans.
    pub fn name(self) -> &'static str {
        match self.0 {
            SIGTERM => "SIGTERM",
            SIGINT => "SIGINT",
            SIGQUIT => "SIGQUIT",
            _ => "SIGHUP",
        }
    }
}

/// Counts stop requests, each of which may arrive as several signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StopRequests {
    first: Option<BootTime>,
}

/// Meaning of a stop signal, given the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopRequest {
    /// Stop gracefully.
    First,
    /// Another signal of the first request, without effect.
    Repeated,
    /// A second request: exit without waiting any longer.
    Second,
}

impl StopRequests {
    /// Records a stop signal that arrives now.
    pub fn arrived(&mut self) -> StopRequest {
        self.arrived_at(clock::boot_now())
    }

    /// Returns true once a stop was requested.
    pub fn any(&self) -> bool {
        self.first.is_some()
    }

    fn arrived_at(&mut self, now: BootTime) -> StopRequest {
        match self.first {
            None => {
                self.first = Some(now);
                StopRequest::First
            }
            Some(first) if now.since(first) < SAME_REQUEST => StopRequest::Repeated,
            Some(_) => StopRequest::Second,
        }
    }
}

/// All signals that the daemon handles.
pub type Signals = SignalStream<Signal>;

/// Signals that end a command which is not a daemon. SIGHUP is one of them, because the result
/// would not be seen after the terminal has hung up.
pub type Stops = SignalStream<Stop>;

/// USR1 and USR2, by number. A command that is not a daemon does not use them, but the command that
/// it runs may.
pub type Relays = SignalStream<i32>;

/// Stream of arriving signals, each with its meaning.
#[derive(Debug)]
pub struct SignalStream<T> {
    pipes: Vec<(T, UnixStream)>,
}

impl Signals {
    /// Registers the handlers. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// If the process has run out of file descriptors.
    pub fn register() -> io::Result<Self> {
        Self::listen(&[
            (Signal::Stop, SIGTERM),
            (Signal::Stop, SIGINT),
            (Signal::Stop, SIGQUIT),
            (Signal::Reload, SIGHUP),
            (Signal::StepDown, SIGUSR1),
            (Signal::Report, SIGUSR2),
        ])
    }
}

impl Stops {
    /// Registers the handlers. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// If the process has run out of file descriptors.
    pub fn register() -> io::Result<Self> {
        Self::listen(&[SIGTERM, SIGINT, SIGQUIT, SIGHUP].map(|number| (Stop(number), number)))
    }
}

impl Relays {
    /// Registers the handlers. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// If the process has run out of file descriptors.
    pub fn register() -> io::Result<Self> {
        Self::listen(&[SIGUSR1, SIGUSR2].map(|number| (number, number)))
    }
}

/// Changes of the terminal's size.
pub type Resizes = SignalStream<()>;

impl Resizes {
    /// Registers the handler. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// If the process has run out of file descriptors.
    pub fn register() -> io::Result<Self> {
        Self::listen(&[((), SIGWINCH)])
    }
}

impl<T: Copy> SignalStream<T> {
    fn listen(signals: &[(T, i32)]) -> io::Result<Self> {
        let listen = |(meaning, number): &(T, i32)| {
            // The handler writes a byte per signal, so no thread is needed.
            let (reader, writer) = StdUnixStream::pair()?;
            reader.set_nonblocking(true)?;
            pipe::register(*number, writer)?;
            Ok((*meaning, UnixStream::from_std(reader)?))
        };
        let pipes: io::Result<Vec<_>> = signals.iter().map(listen).collect();
        Ok(Self { pipes: pipes? })
    }

    /// Returns the next signal. Signals that arrive between calls are kept.
    pub async fn next(&mut self) -> T {
        std::future::poll_fn(|context| {
            for (signal, stream) in &mut self.pipes {
                let mut byte = [0; 1];
                let mut buffer = ReadBuf::new(&mut byte);
                let read = std::pin::Pin::new(stream).poll_read(context, &mut buffer);
                if matches!(read, Poll::Ready(Ok(()))) && !buffer.filled().is_empty() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_within_a_second_are_one_request() {
        let first = BootTime::from_nanos(5_000_000_000);
        let mut requests = StopRequests::default();
        let mut after = |ms| requests.arrived_at(first + Duration::from_millis(ms));
        assert_eq!(after(0), StopRequest::First);
        assert_eq!(after(3), StopRequest::Repeated);
        assert_eq!(after(999), StopRequest::Repeated);
        assert_eq!(after(1_000), StopRequest::Second);
        assert_eq!(after(60_000), StopRequest::Second);
    }
}
