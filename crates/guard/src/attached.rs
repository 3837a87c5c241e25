//! A guard in a different container from its daemon. The guard is process 1 of its container, and
//! connects to the daemon through a Unix socket in a volume of the pod.
//!
//! The guard makes a new connection for each command. Over this connection, the daemon sends the
//! command's environment, claim lock and deadlines. The guard enforces the deadlines like a guard
//! in the daemon's container, and ends the command if the connection is closed. The kernel reports
//! the exit of process 1 only after every other process of the container has exited, so the guard's
//! exit proves that the command is gone.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, connect};
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use rustix::time::Timespec;

use super::children::reap;
use super::dispositions::Ignored;
use super::exec_spec::ExecSpec;
use super::groups::{number, own_group};
use super::guard::{Attended, ContainerSignals, Guard, Launch, Ready};
use super::progress::CommandEnd;
use super::shim::Shim;
use super::survivors::namespace;
use super::terminal::Terminal;
use super::wire::{GuardHello, GuardStart, post_with, socket, split, wait_with};
use super::witness::Witness;
use leasehold_core::election::BootTime;

/// Interval between attempts to connect while the daemon is absent.
const CONNECT_INTERVAL: Duration = Duration::from_millis(50);

/// After this many consecutive connections that the daemon closed without an order, the guard
/// reports a refusal. A connection that lasted longer than [`REFUSED_SOON`] restarts the count.
const REFUSED_MIN: u32 = 3;

/// Maximum time that a daemon takes to refuse a guard. The daemon pauses after each refusal, and
/// the coarse timers of an idle daemon make each pause up to a second longer.
const REFUSED_SOON: Duration = Duration::from_secs(5);

/// Time that a refused guard waits before it connects again.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

/// After this time without a daemon, the guard reports that it is waiting.
const REPORT_AFTER: Duration = Duration::from_secs(5);

/// The variable with the path of the status file. In this container, the file has a different path.
const STATUS_FILE: &str = "LEASEHOLD_STATUS_FILE";

/// The command of an attached guard.
#[derive(Debug, Clone)]
pub struct AttachedCommand {
    /// The socket of the daemon.
    pub socket: PathBuf,
    /// The program and its arguments.
    pub words: Vec<OsString>,
}

/// The reason why an attached guard ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachedEnd {
    /// A signal asked the container to stop.
    Stopped,
    /// The command exited by itself.
    Exited {
        /// How the command ended.
        end: CommandEnd,
        /// True if the guard stopped processes that the command left.
        leftovers_stopped: bool,
    },
}

/// An event that an attached guard reports.
#[derive(Debug, Clone, Copy)]
pub enum AttachedEvent<'a> {
    /// No daemon has accepted a connection yet. Contains the error of the last attempt.
    Waits(&'a io::Error),
    /// The guard is connected, and waits until the daemon leads.
    Connected,
    /// The daemon repeatedly closed the connection without an order.
    Refused,
    /// The daemon has ordered the start of the command.
    Starts,
    /// The command was stopped by the daemon or at its deadline, and is gone.
    Gone,
}

/// The reason why an attached guard cannot start or continue.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The guard is not process 1 of a PID namespace.
    #[error("the guard is not process 1 of its container")]
    NotProcess1,
    /// The guard cannot prepare itself or its command, or cannot record that its command has ended.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The guard of a container, before it knows its command.
pub struct AttachedGuard(ContainerSignals);

impl AttachedGuard {
    /// Prepares this process. Call this early, because the kernel drops signals that process 1 does
    /// not handle.
    pub fn new() -> Result<Self, AttachError> {
        if number(getpid()) != 1 {
            return Err(AttachError::NotProcess1);
        }
        let signals = ContainerSignals::register(Ignored::of_this_process())?;
        // Keeps processes of the same user from tracing the guard, which would let them stop it.
        Witness::hide()?;
        Ok(Self(signals))
    }

    /// Runs the command whenever the daemon orders it, until the command exits by itself or the
    /// container is asked to stop.
    pub fn run(
        self,
        command: &AttachedCommand,
        report: impl Fn(AttachedEvent<'_>),
    ) -> Result<AttachedEnd, AttachError> {
        run(self.0, command, &report)
    }
}

fn run(
    signals: ContainerSignals,
    command: &AttachedCommand,
    report: &dyn Fn(AttachedEvent<'_>),
) -> Result<AttachedEnd, AttachError> {
    let mut attached = Attached {
        command,
        report,
        ended: None,
        shim: None,
        refused: 0,
    };
    let mut ready = Ready::new(Some(signals))?;
    loop {
        ready = match attached.serve(ready)? {
            Served::Again(ready) => ready,
            Served::Ended(end) => return Ok(end),
        };
    }
}

struct Attached<'a> {
    command: &'a AttachedCommand,
    report: &'a dyn Fn(AttachedEvent<'_>),
    /// The `session` of this guard's last command, which has ended.
    ended: Option<BootTime>,
    /// The shim that waits for the next command. If the shim could not be started, the guard starts
    /// another shim together with the command.
    shim: Option<Shim>,
    /// Number of consecutive connections that the daemon closed without an order.
    refused: u32,
}

enum Served {
    Again(Box<Ready>),
    Ended(AttachedEnd),
}

/// The event that ended a wait.
enum Woken {
    Readable,
    Stopped,
    TimedOut,
}

impl Attached<'_> {
    /// Serves one connection.
    fn serve(&mut self, mut ready: Box<Ready>) -> io::Result<Served> {
        let shim = self.shim.take();
        self.shim = shim.or_else(|| Shim::new().ok());
        let Some(daemon) = self.connect(&mut ready)? else {
            return Ok(self.stopped());
        };
        (self.report)(AttachedEvent::Connected);
        let connected_at = leasehold_clock::boot_now();
        let start = match wait(&mut ready, self.shim.as_ref(), Some(&daemon), None)? {
            Woken::Readable => wait_with::<GuardStart>(daemon.as_fd())?,
            Woken::Stopped => return Ok(self.stopped()),
            Woken::TimedOut => None,
        };
        let Some((start, descriptors)) = start else {
            drop(daemon);
            if leasehold_clock::boot_now().since(connected_at) > REFUSED_SOON {
                self.refused = 0;
            }
            return self.pause(ready);
        };
        self.refused = 0;
        let (exec_spec, claim, unexpected) = split(&start, descriptors)?;
        if unexpected.is_some() {
            // The daemon's configuration must not reach this container (I12).
            return Err(Errno::PROTO.into());
        }
        let launch = Launch {
            shim: self.shim.take(),
            stdin: io::stdin().as_fd().try_clone_to_owned()?,
            exec_spec: self.exec_spec(exec_spec)?,
        };
        (self.report)(AttachedEvent::Starts);
        let terminal = Terminal::of_this_process();
        let start = GuardStart {
            foreground: (terminal.as_ref())
                .filter(|terminal| terminal.is_for_cmd())
                .map_or(0, |_| own_group()),
            ..start
        };
        let attended = Guard::new(ready, daemon, start, launch, claim).attend()?;
        if let Some(terminal) = terminal {
            terminal.take_back();
        }
        self.ended = Some(start.session);
        self.after(attended)
    }

    /// Waits before the next connection, because the daemon has exited or has refused this guard.
    fn pause(&mut self, mut ready: Box<Ready>) -> io::Result<Served> {
        self.refused += 1;
        let pause = match self.refused {
            ..REFUSED_MIN => CONNECT_INTERVAL,
            _ => REFUSED_PAUSE,
        };
        if self.refused == REFUSED_MIN {
            (self.report)(AttachedEvent::Refused);
        }
        match wait(&mut ready, self.shim.as_ref(), None, Some(pause))? {
            Woken::Stopped => Ok(self.stopped()),
            Woken::Readable | Woken::TimedOut => Ok(Served::Again(ready)),
        }
    }

    fn stopped(&mut self) -> Served {
        self.shim.take().into_iter().for_each(Shim::dismiss);
        Served::Ended(AttachedEnd::Stopped)
    }

    fn after(&self, attended: Attended) -> io::Result<Served> {
        let Attended {
            ready,
            report,
            stopped_here,
            recorded,
        } = attended;
        if stopped_here {
            return Ok(Served::Ended(AttachedEnd::Stopped));
        }
        let by_itself = match report.end {
            CommandEnd::Exited(_) | CommandEnd::Signalled(_) => !report.by_us,
            CommandEnd::NotExecuted(_) => true,
            CommandEnd::NotSpawned(_) | CommandEnd::Refused | CommandEnd::Unknown => false,
        };
        if by_itself {
            return Ok(Served::Ended(AttachedEnd::Exited {
                end: report.end,
                leftovers_stopped: !report.lingers,
            }));
        }
        // Without the record, the guard exits, because its exit also proves that the command is
        // gone.
        recorded?;
        (self.report)(AttachedEvent::Gone);
        Ok(Served::Again(ready))
    }

    /// Returns a connection; `None` if the container is asked to stop first.
    fn connect(&self, ready: &mut Ready) -> io::Result<Option<OwnedFd>> {
        let address = SocketAddrUnix::new(&self.command.socket)?;
        let hello = GuardHello {
            protocol: GuardHello::PROTOCOL,
            network_namespace: namespace("net"),
            time_namespace: namespace("time"),
            ended: self.ended,
        };
        let myself = pidfd_open(getpid(), PidfdFlags::empty())?;
        let report_at = leasehold_clock::boot_now() + REPORT_AFTER;
        let mut reported = false;
        loop {
            let socket = socket()?;
            let connected = connect(&socket, &address).map_err(io::Error::from);
            let greeted =
                connected.and_then(|()| post_with(socket.as_fd(), &hello, &[myself.as_fd()]));
            match greeted {
                Ok(()) => return Ok(Some(socket)),
                Err(error) if !reported && leasehold_clock::boot_now() >= report_at => {
                    reported = true;
                    (self.report)(AttachedEvent::Waits(&error));
                }
                Err(_) => {}
            }
            if let Woken::Stopped = wait(ready, self.shim.as_ref(), None, Some(CONNECT_INTERVAL))? {
                return Ok(None);
            }
        }
    }

    /// Adds this guard's command to the environment that the daemon sent, and replaces the path of
    /// the status file.
    fn exec_spec(&self, file: OwnedFd) -> io::Result<OwnedFd> {
        let mut exec_spec = ExecSpec::of_file(file)?;
        exec_spec.words.clone_from(&self.command.words);
        for (name, value) in &mut exec_spec.environment {
            if name == STATUS_FILE
                && let Some(here) = in_directory_of(&self.command.socket, Path::new(value))
            {
                *value = here.into();
            }
        }
        exec_spec.to_file()
    }
}

/// Looks for a file of this name in the socket's directory, and returns its path if it exists.
fn in_directory_of(socket: &Path, file: &Path) -> Option<PathBuf> {
    let here = socket.parent()?.join(file.file_name()?);
    here.exists().then_some(here)
}

/// Waits until the daemon sends something, the container is asked to stop, or the time is up. While
/// waiting, reaps orphans, as process 1 must.
fn wait(
    ready: &mut Ready,
    shim: Option<&Shim>,
    daemon: Option<&OwnedFd>,
    limit: Option<Duration>,
) -> io::Result<Woken> {
    let until = limit.map(|limit| leasehold_clock::boot_now() + limit);
    loop {
        let stop = ready.signals.as_mut().and_then(|signals| signals.take().0);
        if stop.is_some() {
            return Ok(Woken::Stopped);
        }
        let _ = ready.child_ended.read(&mut [0; 64]);
        let shim = shim.map(|shim| shim.pid);
        // Orphans that cannot be listed now are reaped later.
        let _ = ready.children.each(|child| {
            if Some(child) != shim {
                reap(child);
            }
        });
        let idle = || PollFd::new(&ready.alarm, PollFlags::empty());
        let signals = ready.signals.as_ref();
        let mut places = [
            PollFd::new(&ready.child_ended, PollFlags::IN),
            signals.map_or_else(idle, |signals| PollFd::new(signals, PollFlags::IN)),
            daemon.map_or_else(idle, |daemon| PollFd::new(daemon, PollFlags::IN)),
        ];
        let left = until.map(|until| until.since(leasehold_clock::boot_now()));
        let left = left.map(|left| Timespec {
            tv_sec: left.as_secs().cast_signed(),
            tv_nsec: left.subsec_nanos().into(),
        });
        match poll(&mut places, left.as_ref()) {
            Ok(0) => return Ok(Woken::TimedOut),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if !places[2].revents().is_empty() {
            return Ok(Woken::Readable);
        }
    }
}
