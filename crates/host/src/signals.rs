//! Signals as a stream. The handlers are registered before any work starts.

use std::fmt::{self, Display, Formatter};
use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use rustix::process::{
    Pid, Resource, Rlimit, Signal as ProcessSignal, getpid, kill_current_process_group, setrlimit,
};
use signal_hook::consts::{
    SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTTIN, SIGTTOU, SIGURG, SIGUSR1, SIGUSR2,
    SIGWINCH, SIGXFSZ,
};
use signal_hook::flag;
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;
use signal_hook::low_level::emulate_default_handler;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::UnixStream;

use crate::exit;
use leasehold_clock as clock;
use leasehold_core::election::BootTime;
use leasehold_guard::dispositions::{Ignored, ending, signal_name, unblock_all};

/// A stop signal that follows the first one within this time belongs to the same request, because
/// timeout(1) signals its child and then its process group, systemd signals every process of a
/// unit, and a supervisor forwards signals that its child received directly.
const SAME_REQUEST: Duration = Duration::from_secs(1);

const NO_CORE: Rlimit = Rlimit {
    current: Some(0),
    maximum: Some(0),
};

/// Action that a signal requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// TERM, INT, QUIT (some images stop with QUIT) or another signal that ends a process by
    /// default: step down and exit. [`StopRequests`] decides the meaning of a second one.
    Stop(StopSignal),
    /// HUP: read the configuration again.
    Reload,
    /// USR1: step down and stay out for one lease duration.
    StepDown,
    /// USR2: log a full status.
    Report,
}

/// A signal that ends a command: TERM, INT, QUIT, HUP or another signal that does so by default.
/// Service managers stop some programs with PWR or a real-time signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopSignal(i32);

impl StopSignal {
    /// INT, as Ctrl-C sends it.
    pub const INTERRUPT: Self = Self(SIGINT);

    /// Returns the signal if a terminal sends it: INT and QUIT by a key, HUP when it hangs up.
    pub fn of_terminal(number: i32) -> Option<Self> {
        [SIGINT, SIGQUIT, SIGHUP]
            .contains(&number)
            .then_some(Self(number))
    }

    /// Returns true if a terminal sends this signal.
    pub fn is_of_terminal(self) -> bool {
        Self::of_terminal(self.0).is_some()
    }

    /// Returns the exit code that a shell reports for a command that this signal ended.
    pub fn exit_code(self) -> u8 {
        exit::SIGNALLED.saturating_add(u8::try_from(self.0).unwrap_or(0))
    }
}

impl Display for StopSignal {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(&signal_name(self.0))
    }
}

/// The end of this process.
///
/// After a signal of the terminal, a shell ends its script only if that signal ended the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Exits with this code.
    Code(u8),
    /// Ends by this signal.
    Signal(StopSignal),
    /// Ends by this signal with the whole process group. The key was meant for the group, and only
    /// CMD, which was in the foreground, received its signal.
    Key(StopSignal),
}

impl From<u8> for Exit {
    fn from(code: u8) -> Self {
        Self::Code(code)
    }
}

impl From<StopSignal> for Exit {
    fn from(stop: StopSignal) -> Self {
        match stop.is_of_terminal() {
            true => Self::Signal(stop),
            false => Self::Code(stop.exit_code()),
        }
    }
}

impl Exit {
    /// Returns the exit code, as a shell reports it.
    pub fn code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(stop) | Self::Key(stop) => stop.exit_code(),
        }
    }

    /// Ends this process by a signal, or returns the exit code. Call it when nothing else is left to
    /// do.
    pub fn take(self) -> ExitCode {
        let stop = match self {
            Self::Code(code) => return ExitCode::from(code),
            Self::Signal(stop) | Self::Key(stop) => stop,
        };
        // The default effect of a signal does not apply to process 1 of a container.
        if getpid() != Pid::INIT {
            if matches!(self, Self::Key(_))
                && let Some(signal) = ProcessSignal::from_named_raw(stop.0)
            {
                let _ = kill_current_process_group(signal);
            }
            // Without this, SIGQUIT would also write a core dump of this process.
            let _ = setrlimit(Resource::Core, NO_CORE);
            let _ = emulate_default_handler(stop.0);
        }
        ExitCode::from(stop.exit_code())
    }
}

/// Resets the inherited state of signals: unblocks all, and handles SIGXFSZ, so that a write beyond
/// the file size limit fails instead of ending the process. Call it before any thread is started.
pub fn prepare() {
    unblock_all();
    if !Ignored::of_this_process().contains(SIGXFSZ) {
        // If this fails, the default effect remains.
        let _ = flag::register(SIGXFSZ, Arc::default());
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

/// Signals that end a command which is not a daemon. They include SIGHUP, because the result is not
/// seen after the terminal has hung up.
pub type Stops = SignalStream<StopSignal>;

/// Signals, by number, that a one-shot command does not use itself, but may relay: USR1 and USR2,
/// WINCH and URG, and without a terminal TTIN, TTOU and CONT. A terminal stops and continues both
/// as one job.
pub type Relays = SignalStream<i32>;

/// Stream of arriving signals, each with its meaning.
#[derive(Debug)]
pub struct SignalStream<T> {
    delivery: SignalDelivery<UnixStream, SignalOnly>,
    meanings: Vec<(T, i32)>,
}

impl Signals {
    /// Registers the handlers. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// If the process has run out of file descriptors.
    pub fn register() -> io::Result<Self> {
        let stops = [SIGTERM, SIGINT, SIGQUIT].into_iter().chain(ending());
        let stops = stops.map(|number| (Signal::Stop(StopSignal(number)), number));
        Self::listen(stops.chain([
            (Signal::Reload, SIGHUP),
            (Signal::StepDown, SIGUSR1),
            (Signal::Report, SIGUSR2),
        ]))
    }
}

impl Stops {
    /// Registers the handlers. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// If the process has run out of file descriptors.
    pub fn register() -> io::Result<Self> {
        let stops = [SIGTERM, SIGINT, SIGQUIT, SIGHUP].into_iter();
        Self::listen(
            stops
                .chain(ending())
                .map(|number| (StopSignal(number), number)),
        )
    }
}

impl Relays {
    /// Registers the handlers. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// If the process has run out of file descriptors.
    pub fn register() -> io::Result<Self> {
        let mut numbers = vec![SIGUSR1, SIGUSR2, SIGWINCH, SIGURG];
        if File::open("/dev/tty").is_err() {
            numbers.extend([SIGTTIN, SIGTTOU, SIGCONT]);
        }
        Self::listen(numbers.into_iter().map(|number| (number, number)))
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
        Self::listen([((), SIGWINCH)])
    }
}

impl<T: Copy> SignalStream<T> {
    fn listen(signals: impl IntoIterator<Item = (T, i32)>) -> io::Result<Self> {
        // A signal that was ignored at the start stays ignored, here and in CMD.
        let ignored = Ignored::of_this_process();
        let heeded = signals.into_iter();
        let meanings: Vec<_> = heeded
            .filter(|(_, number)| !ignored.contains(*number))
            .collect();
        // The handlers write a byte per signal, so no thread is needed.
        let (reader, writer) = StdUnixStream::pair()?;
        reader.set_nonblocking(true)?;
        let reader = UnixStream::from_std(reader)?;
        let numbers = meanings.iter().map(|(_, number)| *number);
        let delivery = SignalDelivery::with_pipe(reader, writer, SignalOnly, numbers)?;
        Ok(Self { delivery, meanings })
    }

    /// Returns the next signal. Signals that arrive between calls are kept, each once.
    pub async fn next(&mut self) -> T {
        std::future::poll_fn(|context| {
            loop {
                if let Some(signal) = self.arrived() {
                    return Poll::Ready(signal);
                }
                let mut bytes = [0; 64];
                let mut buffer = ReadBuf::new(&mut bytes);
                let reader = Pin::new(self.delivery.get_read_mut());
                // Never at end of file, because the handlers keep the other end open.
                if reader.poll_read(context, &mut buffer).is_pending() {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    /// Forgets the signals that have arrived.
    pub fn discard(&mut self) {
        while self.arrived().is_some() {}
    }

    fn arrived(&mut self) -> Option<T> {
        let number = self.delivery.pending().next()?;
        let meaning = self.meanings.iter().find(|(_, of)| *of == number);
        meaning.map(|(meaning, _)| *meaning)
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
