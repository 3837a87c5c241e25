//! A command that runs only while there is authority for it.
//!
//! It does not know where authority comes from: it is told deadlines on
//! CLOCK_BOOTTIME. [`Workload`] starts a command and is told newer deadlines
//! as the claim is renewed; the command is gone by the last of them (I5).
//! [`Prepared`] has everything started but the command, before there is authority.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use leasehold_guard::{Command, Terms, Workload};
//!
//! # async fn example() -> std::io::Result<()> {
//! // `leasehold_guard::stage(std::env::args_os())` stands first in `main`.
//! let until = leasehold_clock::boot_now() + Duration::from_secs(10);
//! let terms = Terms {
//!     valid_until: until,
//!     kill_at: until + Duration::from_secs(3),
//! };
//! let mut workload = Workload::start(&Command::new("./scheduler"), terms, None)?;
//! // Each renewal moves the deadline: `workload.extend(later)`.
//! let ended = workload.ended().await;
//! println!("{:?}", ended.end);
//! # Ok(())
//! # }
//! ```
//!
//! ```text
//!  daemon ──orders──▶ guard ──fork──▶ shim ──exec──▶ CMD ──▶ its descendants
//!         ◀─reports──  (this binary)  (this binary)   a process group of its own
//! ```
//!
//! - [`leasehold_core::judge`] decides, without IO, what the guard does when.
//! - `guard` is the process between: CMD's parent, which outlives the daemon.
//! - `shim` is the stage that becomes CMD: it dies with the guard.
//! - `keeper` is the daemon's side: if the guard fails, it ends CMD itself.
//! - [`claim_share`] is what guards write of their children for the next daemon,
//!   [`survivors`] how that one finds out what a killed guard left behind.
//! - `wire` is what they tell each other, `errand` what is to be executed,
//!   `children` how descendants are found, `groups` what they belong to,
//!   `orphans` who waits for them, `terminal` who has the terminal.
//!
//! **Gone** means: everybody in CMD's process group was killed, then round by
//! round whoever was adopted from it; the kernel says that no child is left;
//! CMD's leader is waited for last, so that its process group is not given to
//! strangers before. A descendant cannot leave by `setsid` or a double fork:
//! guard and daemon are subreapers.
//!
//! **When who fails.** Daemon killed, frozen, out of memory: the guard sends
//! the stop signal (at once if the daemon is gone) and SIGKILL at the last
//! deadline. Guard killed: the kernel ends CMD's leader, the daemon the rest.
//! Guard frozen: the daemon kills it 100 ms after the deadline, with the same
//! effect. Both killed at once: the kernel ends CMD's leader; descendants of
//! it are left, as is everything in a frozen cgroup or in uninterruptible
//! sleep. A command that changes its user or gains rights (setuid, setpriv)
//! loses the tie to its parent, and is left too. The next daemon on the status
//! directory does not take such a claim over at once; for the others there is
//! the fencing token. A command with more rights than the daemon cannot be signalled.

mod children;
pub mod claim_share;
mod errand;
mod groups;
mod guard;
mod keeper;
mod orphans;
mod progress;
mod shim;
pub mod survivors;
mod terminal;
mod wire;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command as Process, ExitCode, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use signal_hook::consts::SIGTERM;
use tokio::sync::watch;

use self::claim_share::{ClaimShare, Place};
use self::errand::Errand;
use self::keeper::Keeper;
use self::orphans::WaitedFor;
use self::terminal::Terminal;
use self::wire::{GuardBegin, GuardStart, ToGuard};
use leasehold_clock::BootTimer;
use leasehold_core::election::BootTime;
use leasehold_core::judge::{Order, Stop};

pub use leasehold_core::judge::Terms;
pub use orphans::Orphans;
pub use progress::{End, Ended, Progress};

/// This program, also after its file was replaced or deleted.
const EXECUTABLE: &str = "/proc/self/exe";
/// The first argument of a guard. Not for people, so not in `--help`.
const GUARD: &str = "__guard";
/// The first argument of a shim.
const SHIM: &str = "__shim";

/// How often, and how many times, a guard that is not needed is looked at;
/// then it is killed, and looked at as many times again.
const DISMISS_ROUND: Duration = Duration::from_millis(1);
const DISMISS_ROUNDS: u32 = 100;

/// Becomes a guard or a shim if `arguments` say so. The first thing in `main`:
/// a guard is to be small, and early.
pub fn stage(arguments: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let stage = arguments.into_iter().nth(1)?;
    if stage == GUARD {
        Some(guard::run())
    } else if stage == SHIM {
        Some(shim::run())
    } else {
        None
    }
}

/// A command to be run.
#[derive(Debug, Clone)]
pub struct Command {
    errand: Errand,
    stop_signal: i32,
    quiet: bool,
    executable: PathBuf,
}

impl Command {
    /// `program`, found as `execvp` finds it.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            errand: Errand {
                words: vec![program.into()],
                environment: Vec::new(),
            },
            stop_signal: SIGTERM,
            quiet: false,
            executable: EXECUTABLE.into(),
        }
    }

    /// Appends arguments.
    #[must_use]
    pub fn arguments<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        let arguments = arguments.into_iter().map(Into::into);
        self.errand.words.extend(arguments);
        self
    }

    /// Sets one environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.errand.environment.push((name.into(), value.into()));
        self
    }

    /// The signal that asks it to end; SIGTERM unless this says otherwise.
    #[must_use]
    pub fn stop_signal(mut self, signal: i32) -> Self {
        self.stop_signal = signal;
        self
    }

    /// For hooks: without standard input and without the terminal, and what it
    /// prints goes to standard error, where the log is.
    #[must_use]
    pub fn quiet(mut self) -> Self {
        self.quiet = true;
        self
    }

    /// The `leasehold` binary that is to be guard and shim; this process's own
    /// unless this says otherwise. For programs that embed the library.
    #[must_use]
    pub fn executable(mut self, executable: impl Into<PathBuf>) -> Self {
        self.executable = executable.into();
        self
    }

    /// Starts the guard, and the shim that waits to become this command: what
    /// takes milliseconds, and needs no authority. To be called inside a tokio runtime.
    ///
    /// # Errors
    /// When the guard cannot be started.
    pub fn prepare(self) -> io::Result<Prepared> {
        orphans::adopt()?;
        let terminal = Terminal::of_this_process();
        let (socket, theirs) = wire::pair()?;
        let stdin = if self.quiet {
            OwnedFd::from(std::fs::File::open("/dev/null")?)
        } else {
            io::stdin().as_fd().try_clone_to_owned()?
        };
        let begin = GuardBegin {
            on_terminal: terminal.is_some(),
        };
        wire::post_with(socket.as_fd(), &begin, &[stdin.as_fd()])?;
        let mut guard = Process::new(&self.executable);
        // CMD inherits its environment.
        guard
            .arg0("leasehold")
            .arg(GUARD)
            .stdin(Stdio::from(theirs));
        without_ours(&mut guard);
        if self.quiet {
            guard.stdout(Stdio::from(io::stderr().as_fd().try_clone_to_owned()?));
        }
        if terminal.is_some() {
            // From its first instruction on; else it makes a session itself,
            // which the leader of a group cannot.
            guard.process_group(0);
        }
        let pid = i32::try_from(guard.spawn()?.id())
            .ok()
            .and_then(Pid::from_raw);
        let guard = WaitedFor::new(pid.ok_or(io::ErrorKind::Other)?);
        Ok(Prepared {
            command: self,
            socket,
            guard,
            terminal,
        })
    }
}

/// Takes away what in our environment is meant for us alone.
pub fn without_ours(process: &mut Process) {
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_ours(name)) {
        process.env_remove(name);
    }
}

/// Whether a variable of our environment is meant for us alone: configuration,
/// which may hold a credential (I12), and the service manager's, under which
/// a command could speak in our name.
fn is_ours(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    let configuration = name
        .strip_prefix(b"LEASEHOLD_")
        .is_some_and(|key| key.windows(2).any(|pair| pair == b"__"));
    configuration || name == b"NOTIFY_SOCKET" || name.starts_with(b"WATCHDOG_")
}

/// A command under a claim. Dropping it kills the command; who must know that
/// it is gone calls [`Workload::kill`] and waits for [`Workload::ended`].
#[derive(Debug)]
pub struct Workload {
    orders: watch::Sender<ToGuard>,
    progress: watch::Receiver<Progress>,
    guard: u32,
}

/// A command that can start at once: its guard waits for authority.
///
/// Dropped, it ends by itself, and is waited for where there are [`Orphans`];
/// elsewhere [`Prepared::dismiss`] leaves nothing.
#[derive(Debug)]
pub struct Prepared {
    command: Command,
    socket: OwnedFd,
    guard: WaitedFor,
    terminal: Option<Terminal>,
}

impl Prepared {
    /// The process id of the guard that waits.
    pub fn guard(&self) -> u32 {
        self.guard.pid().as_raw_nonzero().get().unsigned_abs()
    }

    /// Starts the command, with what is known of its environment only now. Its
    /// guard holds the lock of `claim` as long as anything of the command is
    /// left, and writes down there what it started.
    ///
    /// # Errors
    /// When a text holds a NUL, no descriptors are left, or the guard was lost
    /// while it waited and no other can be started: then nothing runs. That the command cannot be executed is told by [`Workload::ended`].
    pub fn start(
        mut self,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        terms: Terms,
        claim: Option<ClaimShare>,
    ) -> io::Result<Workload> {
        self.command.errand.environment.extend(environment);
        let errand = self.command.errand.to_file()?;
        let timer = BootTimer::new()?;
        let foreground = (self.terminal.as_ref())
            .filter(|terminal| !self.command.quiet && terminal.is_for_cmd())
            .map_or(0, |_| groups::own_group());
        let start = GuardStart {
            terms,
            stop_signal: self.command.stop_signal,
            foreground,
            place: claim.as_ref().map_or(Place::Command, ClaimShare::place),
        };
        let kept = claim.as_ref().map(ClaimShare::try_clone).transpose()?;
        let with = std::iter::once(errand.as_fd()).chain(claim.as_ref().map(AsFd::as_fd));
        let with: Vec<_> = with.collect();
        let order = Order {
            terms,
            stop: None,
            kill: false,
        };
        let (orders, newest) = watch::channel(ToGuard {
            order,
            relay: 0,
            relays: 0,
        });
        let (publish, progress) = watch::channel(Progress::Starting);
        // Everything that can fail goes before the guard is told: after that
        // CMD runs, and somebody has to keep it.
        let command = self.command.clone();
        let mut guard = self.guard();
        let mut keeper = Keeper::new(self, newest.clone(), publish.clone())?;
        if keeper.start(&start, &with).is_err() {
            // It was killed while it waited.
            let another = command.prepare()?;
            guard = another.guard();
            keeper = Keeper::new(another, newest, publish)?;
            keeper.start(&start, &with)?;
        }
        keeper.claim = kept;
        // It ends by itself when CMD is gone, whoever still looks at it.
        tokio::spawn(keeper.keep(timer));
        Ok(Workload {
            orders,
            progress,
            guard,
        })
    }

    /// It is not needed. Waits until it is gone, for a moment.
    pub async fn dismiss(self) {
        drop(self.socket);
        let guard = self.guard.pid();
        let ended = || {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            !matches!(waitid(WaitId::Pid(guard), options), Ok(None))
        };
        for round in 0..2 * DISMISS_ROUNDS {
            if ended() {
                return;
            }
            if round == DISMISS_ROUNDS {
                // Somebody has stopped it. There is nothing that it guards.
                let _ = kill_process(guard, Signal::KILL);
            }
            tokio::time::sleep(DISMISS_ROUND).await;
        }
    }
}

impl Workload {
    /// Starts `command` in the hands of a guard, which holds the lock of `claim`
    /// as long as anything of the command is left. To be called inside a tokio runtime.
    ///
    /// # Errors
    /// As [`Command::prepare`] and [`Prepared::start`].
    pub fn start(command: &Command, terms: Terms, claim: Option<ClaimShare>) -> io::Result<Self> {
        command.clone().prepare()?.start([], terms, claim)
    }

    /// One that runs until its sender says otherwise: for tests of who waits for it.
    #[cfg(any(test, feature = "stand-in"))]
    pub fn stand_in() -> (Self, watch::Sender<Progress>) {
        let never = BootTime::from_nanos(u64::MAX);
        let terms = Terms {
            valid_until: never,
            kill_at: never,
        };
        let order = Order {
            terms,
            stop: None,
            kill: false,
        };
        let (orders, _) = watch::channel(ToGuard {
            order,
            relay: 0,
            relays: 0,
        });
        let (publish, progress) = watch::channel(Progress::Running { pid: 0 });
        let workload = Self {
            orders,
            progress,
            guard: 0,
        };
        (workload, publish)
    }

    /// The process id of the guard.
    pub fn guard(&self) -> u32 {
        self.guard
    }

    /// The claim was renewed. The newest terms win; it never waits.
    pub fn extend(&self, terms: Terms) {
        self.orders.send_modify(|wanted| wanted.order.terms = terms);
    }

    /// Asks CMD to end with `signal`; it is killed at `kill_at`, or at the
    /// deadline if that comes first. [`Workload::extend`] goes on beside it. Asked
    /// again, it has until the earlier instant of the two.
    pub fn stop(&self, signal: i32, kill_at: BootTime) {
        let stop = Stop { signal, kill_at };
        self.orders
            .send_modify(|wanted| wanted.order = wanted.order.stopped(stop));
    }

    /// Kills CMD now.
    pub fn kill(&self) {
        self.orders.send_modify(|wanted| wanted.order.kill = true);
    }

    /// Passes a signal on to CMD's process group. Of several that come faster
    /// than the guard reads, the last one arrives.
    pub fn signal(&self, signal: i32) {
        self.orders.send_modify(|wanted| {
            wanted.relay = signal;
            wanted.relays = wanted.relays.wrapping_add(1);
        });
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        *self.progress.borrow()
    }

    /// The next change of [`Workload::progress`]; may be given up and called
    /// again. After [`Progress::Gone`] it waits for ever.
    pub async fn changed(&mut self) -> Progress {
        if self.progress.changed().await.is_err() {
            // The keeper ended with CMD, or with its runtime.
            std::future::pending::<()>().await;
        }
        *self.progress.borrow_and_update()
    }

    /// Waits until nothing of CMD is left; may be given up and called again.
    pub async fn ended(&mut self) -> Ended {
        loop {
            let progress = *self.progress.borrow_and_update();
            if let Progress::Gone(ended) = progress {
                return ended;
            }
            self.changed().await;
        }
    }
}
