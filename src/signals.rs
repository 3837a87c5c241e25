//! The signals of a daemon, as a stream: registered before any work starts.

use std::io;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::task::Poll;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::low_level::pipe;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::UnixStream;

use crate::clock;
use crate::election::BootTime;
use crate::exit;

/// A stop signal that comes sooner after the first one belongs to the same
/// request: timeout(1) signals its child and then its process group, systemd
/// every process of a unit, and a supervisor passes on what its child got too.
const SAME_REQUEST: Duration = Duration::from_secs(1);

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// TERM, INT or QUIT (which is how some images ask to stop): step down and
    /// exit. [`StopRequests`] tells what a second one means.
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
    /// What a shell would say of a command that it ended.
    pub fn exit_code(self) -> u8 {
        exit::SIGNALLED.saturating_add(u8::try_from(self.0).unwrap_or(0))
    }

    /// Its name, for humans.
    pub fn name(self) -> &'static str {
        match self.0 {
            SIGTERM => "SIGTERM",
            SIGINT => "SIGINT",
            SIGQUIT => "SIGQUIT",
            _ => "SIGHUP",
        }
    }
}

/// Counts requests to stop, of which each may arrive as several signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StopRequests {
    first: Option<BootTime>,
}

/// What a stop signal means, after those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopRequest {
    /// Stop gracefully.
    First,
    /// Another signal of the first request: nothing more.
    Repeated,
    /// A second request: do not wait any longer.
    Second,
}

impl StopRequests {
    /// Counts a stop signal that arrives now.
    pub fn arrived(&mut self) -> StopRequest {
        self.arrived_at(clock::boot_now())
    }

    /// True once a stop was requested.
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

/// All signals that the daemon listens to.
pub type Signals = SignalStream<Signal>;

/// The signals that end a command that is no daemon. A terminal that hangs up
/// ends it as well: nobody would see what becomes of it.
pub type Stops = SignalStream<Stop>;

/// Signals that mean nothing to a command that is no daemon, and may mean
/// something to what it runs: USR1 and USR2, by their numbers.
pub type Relays = SignalStream<i32>;

/// Signals that arrive, with what each of them means.
#[derive(Debug)]
pub struct SignalStream<T> {
    pipes: Vec<(T, UnixStream)>,
}

impl Signals {
    /// Registers the handlers. To be called inside a tokio runtime.
    ///
    /// # Errors
    /// When the process has no descriptors left.
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
    /// Registers the handlers. To be called inside a tokio runtime.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn register() -> io::Result<Self> {
        Self::listen(&[SIGTERM, SIGINT, SIGQUIT, SIGHUP].map(|number| (Stop(number), number)))
    }
}

impl Relays {
    /// Registers the handlers. To be called inside a tokio runtime.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn register() -> io::Result<Self> {
        Self::listen(&[SIGUSR1, SIGUSR2].map(|number| (number, number)))
    }
}

impl<T: Copy> SignalStream<T> {
    fn listen(signals: &[(T, i32)]) -> io::Result<Self> {
        let listen = |(meaning, number): &(T, i32)| {
            // A byte per signal, written by the handler; no thread is needed.
            let (reader, writer) = StdUnixStream::pair()?;
            reader.set_nonblocking(true)?;
            pipe::register(*number, writer)?;
            Ok((*meaning, UnixStream::from_std(reader)?))
        };
        let pipes: io::Result<Vec<_>> = signals.iter().map(listen).collect();
        Ok(Self { pipes: pipes? })
    }

    /// The next signal. Signals that arrive while nobody waits are kept.
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
