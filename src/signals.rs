//! The signals of a daemon, as a stream: registered before any work starts.

use std::io;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::task::Poll;

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::low_level::pipe;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::UnixStream;

use crate::exit;

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// TERM, INT or QUIT (which is how some images ask to stop): step down and
    /// exit; the second one exits at once.
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
