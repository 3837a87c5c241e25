//! Streams of the signals that leasehold handles.

use std::fmt::{self, Display, Formatter};
use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::process::ExitCode;
use std::sync::Arc;
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
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

use crate::exit;
use leasehold_clock as clock;
use leasehold_core::election::BootTime;
use leasehold_guard::dispositions::{Ignored, ending, signal_name, unblock_all};

/// Stop signals within this time count as one request, because timeout(1), systemd and supervisors
/// may signal a process both directly and through its group, its unit or its parent.
const SAME_REQUEST: Duration = Duration::from_secs(1);

const NO_CORE: Rlimit = Rlimit {
    current: Some(0),
    maximum: Some(0),
};

/// The action that a signal requests from a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// The daemon steps down and exits (TERM, INT, QUIT and others that end a process by default).
    Stop(StopSignal),
    /// The daemon reloads its configuration (HUP).
    Reload,
    /// The daemon steps down, and does not contend for one lease duration (USR1).
    StepDown,
    /// The daemon logs a full status (USR2).
    Report,
}

/// A signal that ends a process by default, such as TERM, INT, HUP, PWR or a real-time signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopSignal(i32);

impl StopSignal {
    /// INT, which Ctrl-C sends.
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

/// How this process ends. A shell ends its script after Ctrl-C only if SIGINT ended the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The process exits with this code.
    Code(u8),
    /// This signal ends the process.
    Signal(StopSignal),
    /// This signal ends the process and its process group. The terminal sent the signal only to
    /// CMD, which was in the foreground, but the user meant the whole group.
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

    /// Ends this process by a signal, or returns the exit code for `main`.
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

/// Unblocks all signals, and handles SIGXFSZ, so that a write beyond the file size limit fails
/// instead of ending the process. Call it before any thread is started.
pub fn prepare() {
    unblock_all();
    if !Ignored::of_this_process().contains(SIGXFSZ) {
        // If this fails, the default action stays in place.
        let _ = flag::register(SIGXFSZ, Arc::default());
    }
}

/// Counts stop requests. One request may arrive as several signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StopRequests {
    first: Option<BootTime>,
}

/// The meaning of a stop signal, given the earlier stop signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopRequest {
    /// The process must stop gracefully.
    First,
    /// The signal belongs to the first request, and has no effect.
    Repeated,
    /// The process must exit immediately.
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

/// Signals that stop a one-shot command, including SIGHUP after the terminal has hung up.
pub type Stops = SignalStream<StopSignal>;

/// Signals that a one-shot command relays to its child, by number: USR1, USR2, WINCH and URG. Also
/// TTIN, TTOU and CONT, unless a terminal stops and continues the whole job itself.
pub type Relays = SignalStream<i32>;

/// Changes of the terminal's size.
pub type Resizes = SignalStream<()>;

/// Stream of arriving signals. Each signal is mapped to its meaning.
#[derive(Debug)]
pub struct SignalStream<T> {
    delivery: SignalDelivery<UnixStream, SignalOnly>,
    meanings: Vec<(T, i32)>,
    /// Signals that have arrived, and were not returned yet.
    put_back: Vec<T>,
}

impl Signals {
    /// Registers the handlers. Must be called inside a tokio runtime. Fails if no descriptor is free.
    pub fn register() -> io::Result<Self> {
        let stops = [SIGTERM, SIGINT, SIGQUIT].into_iter().chain(ending());
        let stops = stops.map(|number| (Signal::Stop(StopSignal(number)), number));
        Self::listen(stops.chain([
            (Signal::Reload, SIGHUP),
            (Signal::StepDown, SIGUSR1),
            (Signal::Report, SIGUSR2),
        ]))
    }

    /// Returns a stop signal that has arrived, without waiting. Other signals are kept for
    /// [`Self::next`].
    pub fn stop_arrived(&mut self) -> Option<StopSignal> {
        let arrived: Vec<_> = std::iter::from_fn(|| self.arrived()).collect();
        let stop = arrived.iter().find_map(|signal| match signal {
            Signal::Stop(stop) => Some(*stop),
            Signal::Reload | Signal::StepDown | Signal::Report => None,
        });
        self.put_back = arrived;
        stop
    }
}

impl Stops {
    /// Registers the handlers. Must be called inside a tokio runtime. Fails if no descriptor is
    /// free.
    pub fn register() -> io::Result<Self> {
        let stops = [SIGTERM, SIGINT, SIGQUIT, SIGHUP].into_iter();
        let stops = stops.chain(ending());
        Self::listen(stops.map(|number| (StopSignal(number), number)))
    }
}

impl Relays {
    /// Registers the handlers. Must be called inside a tokio runtime. Fails if no descriptor is
    /// free.
    pub fn register() -> io::Result<Self> {
        let mut numbers = vec![SIGUSR1, SIGUSR2, SIGWINCH, SIGURG];
        if File::open("/dev/tty").is_err() {
            numbers.extend([SIGTTIN, SIGTTOU, SIGCONT]);
        }
        Self::listen(numbers.into_iter().map(|number| (number, number)))
    }
}

impl Resizes {
    /// Registers the handler. Must be called inside a tokio runtime. Fails if no descriptor is
    /// free.
    pub fn register() -> io::Result<Self> {
        Self::listen([((), SIGWINCH)])
    }
}

impl<T: Copy> SignalStream<T> {
    fn listen(signals: impl IntoIterator<Item = (T, i32)>) -> io::Result<Self> {
        // A signal that was ignored at the start stays ignored, here and in CMD.
        let ignored = Ignored::of_this_process();
        let mut meanings: Vec<_> = signals.into_iter().collect();
        meanings.retain(|(_, number)| !ignored.contains(*number));
        // The handlers write a byte per signal, so no thread is needed.
        let (reader, writer) = StdUnixStream::pair()?;
        reader.set_nonblocking(true)?;
        let reader = UnixStream::from_std(reader)?;
        let numbers = meanings.iter().map(|(_, number)| *number);
        let delivery = SignalDelivery::with_pipe(reader, writer, SignalOnly, numbers)?;
        Ok(Self {
            delivery,
            meanings,
            put_back: Vec::new(),
        })
    }

    /// Waits for the next signal. Signals that arrive between calls are kept, each only once.
    pub async fn next(&mut self) -> T {
        loop {
            if let Some(signal) = self.arrived() {
                return signal;
            }
            // The read never reaches the end of file, because the handlers keep the writer open.
            let _ = self.delivery.get_read_mut().read(&mut [0; 64]).await;
        }
    }

    /// Drops the signals that have arrived.
    pub fn discard(&mut self) {
        while self.arrived().is_some() {}
    }

    fn arrived(&mut self) -> Option<T> {
        if let Some(signal) = self.put_back.pop() {
            return Some(signal);
        }
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
