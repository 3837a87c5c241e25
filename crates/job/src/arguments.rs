use std::ffi::OsString;
use std::time::Duration;

use clap::Args;

use leasehold_cli::keys::{Configuration, HolderKeys, useless_without_command};
use leasehold_cli::names::LockName;
use leasehold_cli::values::{between, expected, whole};
use leasehold_config::duration;
use leasehold_core::election::{LEASE_DURATION_MAX, LEASE_DURATION_MIN, ResourceName};
use leasehold_core::lock::{LockMode, MIN_HOLD_MAX, MinHold, OncePer, SLOTS_MAX, Slots, WorkKey};
use leasehold_host::exit;

/// Keys that have no effect if the lock is held until standard input closes.
const OF_A_COMMAND: [&str; 3] = [
    "workload.stop_signal",
    "workload.stop_scope",
    "workload.linger",
];

const WAIT_MAX: Duration = Duration::from_secs(31 * 24 * 3600);
const PERIOD_MIN: Duration = Duration::from_secs(1);
const PERIOD_MAX: Duration = Duration::from_secs(366 * 24 * 3600);
const HELP: &str = "\
Examples:
  leasehold lock nightly-report -- ./report
                             one report at a time; others wait for their turn
  leasehold lock nightly-report -n -- ./report || [ $? -eq 75 ]
                             skip it if another host does it
  leasehold lock imports --slots 3 --wait 10m -- ./import orders
                             three imports at a time
  leasehold lock minutely -n --at-least 55s -- ./sync
                             from cron on every host: once a minute, whatever their clocks say
  leasehold lock bills --wait 2h --once-per 20h -- ./bills || [ $? -eq 77 ]
                             from cron on every host: once a night; the next host retries a failed run
  leasehold lock schema --shared -- ./app
  leasehold lock schema -- ./migrate
                             many applications, or one migration; -s, -x, -w and -n as in flock(1)
  coproc leasehold lock nightly-report; read -r line <&\"${COPROC[0]}\"
                             hold it from a script until its standard input closes

The command gets LEASEHOLD_LOCK, LEASEHOLD_TOKEN (also as LEASEHOLD_LOCK_TOKEN) and \
LEASEHOLD_IDENTITY; with --slots N also LEASEHOLD_SLOT, its slot from 0 to N-1. If the lock is lost while the command \
runs, the command is stopped before another process can hold the lock.

Signals: after TERM, INT, QUIT, HUP or another signal that ends a process by default, leasehold sends workload.stop_signal \
to the command, which has workload.stop_grace to end while the lock is renewed. A second signal 1s or more after the first kills the command. Without a command the \
lock is held until standard input closes; after a signal, for at most workload.stop_grace. In this \
mode, leasehold exits with 64 if standard input is already at its end, as with /dev/null, or if standard input is a terminal and leasehold \
runs in the background.

Exit codes: the command's own; 64 usage, 69 MongoDB is unreachable or refuses a call, 71 the operating system refused a resource that leasehold or \
the command needs, 75 not acquired, 76 lost while the command ran, or its leftover processes were stopped, 77 skipped by --once-per, 78 configuration, 126/127 the command cannot be \
executed / found, 128+N ended by signal N.";

/// Arguments of `leasehold lock`.
#[derive(Debug, Clone, Args)]
#[command(after_help = HELP)]
pub struct LockArgs {
    #[command(flatten)]
    pub(crate) configuration: Configuration<HolderKeys>,
    #[command(flatten)]
    lock: LockName,
    /// Acquire a shared lock
    #[arg(short, long, conflicts_with_all = ["slots", "exclusive"])]
    shared: bool,
    /// Acquire an exclusive lock (default)
    #[arg(short = 'x', short_alias = 'e', long, conflicts_with = "slots")]
    exclusive: bool,
    /// Acquire one of N slots (a semaphore)
    ///
    /// All users must pass the same N.
    #[arg(long, value_name = "N", allow_negative_numbers = true,
          value_parser = whole::<u32>(1, SLOTS_MAX))]
    slots: Option<u32>,
    /// Keep the lock at least this long
    ///
    /// Such as 55s, even if the command ends sooner or dies; at most 24h.
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true,
          value_parser = between(Duration::ZERO, MIN_HOLD_MAX))]
    at_least: Option<Duration>,
    /// Skip CMD if it succeeded this recently
    ///
    /// Such as 1h, measured by MongoDB's clock.
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true,
          value_parser = between(PERIOD_MIN, PERIOD_MAX),
          conflicts_with_all = ["shared", "slots"], requires = "command")]
    once_per: Option<Duration>,
    /// Name of the work that --once-per applies to
    ///
    /// Needed if one lock covers several kinds of work [default: default]
    #[arg(long, value_parser = work_key, requires = "once_per")]
    key: Option<WorkKey>,
    /// Exit code if --once-per skips
    #[arg(long, value_name = "CODE", allow_negative_numbers = true,
          value_parser = whole::<u8>(0, 255), default_value_t = exit::SKIPPED, requires = "once_per")]
    pub(crate) skipped_exit_code: u8,
    /// Maximum wait (30 is 30s)
    ///
    /// Such as 30s or 1m30s; a bare number is in seconds, as in flock(1) [default: no limit; 10 lease durations (4m) if MongoDB does not answer]
    // The error for a value such as `-1s` names the flag.
    #[arg(short, long, visible_alias = "timeout", value_name = "DURATION",
          allow_hyphen_values = true, value_parser = seconds_or_duration, group = "limit", conflicts_with = "no_wait")]
    wait: Option<Duration>,
    /// Fail instead of waiting for other holders
    ///
    /// If MongoDB does not answer, leasehold still waits for up to lease.renew_deadline (18s), which is long enough for a replica set to elect a new primary. Holders without a recent renewal are watched until they expire, usually for one lease duration (24s), because they may be dead.
    #[arg(short, long, aliases = ["nonblock", "nb"], group = "limit")]
    no_wait: bool,
    /// Additional attempts, with --wait or -n
    ///
    /// One retry_interval apart.
    #[arg(long, value_name = "N", allow_negative_numbers = true,
          value_parser = whole::<u32>(0, u32::MAX), default_value_t = 0, hide_default_value = true,
          requires = "limit")]
    pub(crate) retries: u32,
    /// Exit code if not acquired
    #[arg(short = 'E', long, value_name = "CODE", allow_negative_numbers = true,
          value_parser = whole::<u8>(0, 255), default_value_t = exit::NOT_ACQUIRED)]
    pub(crate) conflict_exit_code: u8,
    /// Eviction after this time without renewals
    ///
    /// Time without a renewal after which others evict this holder; other durations are scaled [default: 24s] [env: LEASEHOLD_LEASE__LEASE_DURATION]
    #[arg(long, value_name = "DURATION", allow_negative_numbers = true,
          value_parser = between(LEASE_DURATION_MIN, LEASE_DURATION_MAX))]
    pub(crate) lease_duration: Option<Duration>,
    /// Log the acquisition and how long it took
    ///
    /// Even without a wait.
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Print the exit code as JSON; without CMD
    ///
    /// As a last line of JSON, for a parent that cannot wait for the process.
    #[arg(long, conflicts_with = "command")]
    pub(crate) report_exit_code: bool,
    /// Do not report a wait, a conflict or a skip
    ///
    /// Print no line if others hold the lock, or if --once-per skips CMD; only the exit code reports it. With --once-per, a --wait that ends without a success is still reported.
    #[arg(short, long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Command to run; without it, hold until standard input closes
    #[arg(value_name = "CMD", last = true)]
    pub(crate) command: Vec<OsString>,
}

impl LockArgs {
    /// Returns the error for a flag that has no effect without a command.
    pub fn contradiction(&self) -> Option<String> {
        let holds_only = self.command.is_empty();
        holds_only.then(|| useless_without_command(&OF_A_COMMAND, &self.configuration.sources))?
    }

    /// Returns the name of the lock.
    pub fn lock(&self) -> &ResourceName {
        self.lock.get()
    }

    pub(crate) fn want(&self) -> LockMode {
        match self.slots.and_then(Slots::new) {
            Some(slots) => LockMode::Slot(slots),
            None if self.shared => LockMode::Shared,
            None => LockMode::Exclusive,
        }
    }

    pub(crate) fn at_least(&self) -> MinHold {
        self.at_least.and_then(MinHold::new).unwrap_or_default()
    }

    pub(crate) fn once_per(&self) -> Option<OncePer> {
        let key = || self.key.clone().unwrap_or_default();
        self.once_per.map(|period| OncePer { period, key: key() })
    }

    pub(crate) fn limit(&self) -> Option<Duration> {
        match self.no_wait {
            true => Some(Duration::ZERO),
            false => self.wait,
        }
    }
}

fn work_key(text: &str) -> Result<WorkKey, String> {
    WorkKey::new(text).map_err(expected)
}

fn seconds_or_duration(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok();
    match seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
        Some(wait) if wait <= WAIT_MAX => Ok(wait),
        Some(_) | None => duration(text, Duration::ZERO, WAIT_MAX),
    }
}
