//! Flags of `leasehold lock`.

use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::LockArgs;
use leasehold_cli::flags::{command_words, need_a_command, sources, time, with_keys, words};
use leasehold_cli::lock_flags::{lock_help, lock_name, name};
use leasehold_cli::misuse::{Misuse, wrong};
use leasehold_core::election::{LEASE_DURATION_MAX, LEASE_DURATION_MIN};
use leasehold_core::lock::{AT_LEAST_MAX, AtLeast, OncePer, SLOTS_MAX, Slots, Want, WorkKey};
use leasehold_host::exit;

/// Maximum of `--wait`. A wait of more than a month needs no limit.
const WAIT_MAX: Duration = Duration::from_secs(31 * 24 * 3600);
/// Maximum of `--once-per`: a year.
const PERIOD_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// Keys without effect if the lock is held until standard input closes.
const OF_A_COMMAND: [&str; 3] = [
    "workload.stop_signal",
    "workload.stop_scope",
    "workload.linger",
];

/// Subcommand whose usage an error shows.
const LOCK: &[&str] = &["lock"];

const LOCK_HELP: &str = "\
Examples:
  leasehold lock nightly-report -- ./report
                             one report at a time; others wait for their turn
  leasehold lock nightly-report -n -- ./report || [ $? -eq 75 ]
                             skip it if another host does it
  leasehold lock imports --slots 3 --wait 10m -- ./import orders
                             three imports at a time
  leasehold lock minutely -n --at-least 55s -- ./sync
                             from cron on every host: once a minute, whatever their clocks say
  leasehold lock reports --once-per 20h -- ./report || [ $? -eq 77 ]
                             tried each hour until it has succeeded once that day
  leasehold lock schema --shared -- ./app      and      leasehold lock schema -- ./migrate
                             many applications, or one migration; -s, -x, -w SECONDS and -n as in flock(1)
  coproc leasehold lock nightly-report; read -r line <&\"${COPROC[0]}\"
                             hold it from a script until its standard input closes

The command gets LEASEHOLD_LOCK, LEASEHOLD_TOKEN (also as LEASEHOLD_LOCK_TOKEN) and \
LEASEHOLD_IDENTITY; with --slots N also LEASEHOLD_SLOT, its number from 0 to N-1. If the lock is lost while it \
runs, it is ended before another process can hold it.

Signals: TERM, INT, QUIT, HUP, and others that end a process by default, send the command workload.stop_signal; it has workload.stop_grace to end, and \
the lock is renewed meanwhile. A second such signal 1s or more after the first kills it. Without a command the \
lock is held until standard input closes, after a signal for workload.stop_grace at most. A standard input that is \
already at its end, such as /dev/null, or a terminal of another job is refused (64).

Exit codes: the command's own; 64 usage, 69 MongoDB unreachable or refusing, 71 the operating system refused what leasehold or \
the start of the command needs, 75 not acquired, 76 lost while the command ran, or processes that it left were stopped, 77 skipped by --once-per, 78 configuration, 126/127 the command cannot be \
executed / found, 128+N ended by signal N.";

/// Defines `leasehold lock`.
pub fn lock_command() -> Command {
    let sections = ["lease", "identity", "mongodb", "workload", "log"];
    with_keys(
        Command::new("lock")
            .about("Run a command under a distributed lock, or hold the lock until standard input closes")
            .after_help(LOCK_HELP),
        |key| lock_help(key, &sections),
    )
    .arg(name())
    .arg(
        Arg::new("shared")
            .long("shared")
            .short('s')
            .help("Acquire a shared lock")
            .action(ArgAction::SetTrue)
            .conflicts_with_all(["slots", "exclusive"]),
    )
    .arg(
        Arg::new("exclusive")
            .long("exclusive")
            .short('x')
            .short_alias('e')
            .help("Acquire an exclusive lock (default)")
            .action(ArgAction::SetTrue)
            .conflicts_with("slots"),
    )
    .arg(
        Arg::new("slots")
            .long("slots")
            .value_name("N")
            .allow_negative_numbers(true)
            .help("Acquire one of N slots (a semaphore); all users must pass the same N"),
    )
    .arg(
        Arg::new("at-least")
            .long("at-least")
            .value_name("DURATION")
            .allow_hyphen_values(true)
            .help("Minimum time that the place stays taken after the acquisition, such as 55s, even if the command ends sooner or dies (at most 24h)"),
    )
    .arg(
        Arg::new("once-per")
            .long("once-per")
            .value_name("DURATION")
            .allow_hyphen_values(true)
            .help("Skip the command if it succeeded less than this ago, such as 1h, by the clock of MongoDB")
            .conflicts_with_all(["shared", "slots"]),
    )
    .arg(
        Arg::new("key")
            .long("key")
            .value_name("KEY")
            .help("Name of the work that --once-per counts, if a lock covers several [default: default]")
            .requires("once-per"),
    )
    .arg(
        Arg::new("skipped-exit-code")
            .long("skipped-exit-code")
            .value_name("CODE")
            .allow_negative_numbers(true)
            .help("Exit code if --once-per skips the command [default: 77]")
            .requires("once-per"),
    )
    .arg(
        Arg::new("wait")
            .long("wait")
            .short('w')
            .visible_alias("timeout")
            .value_name("DURATION")
            // The error for a value such as `-1s` names the flag.
            .allow_hyphen_values(true)
            .help("Maximum wait, such as 30s or 1m30s; a bare number is in seconds [default: no limit]")
            .conflicts_with("no-wait"),
    )
    .arg(
        Arg::new("no-wait")
            .long("no-wait")
            .short('n')
            .aliases(["nonblock", "nb"])
            .help("Fail instead of waiting for other holders")
            .action(ArgAction::SetTrue),
    )
    .arg(
        Arg::new("retries")
            .long("retries")
            .value_name("N")
            .allow_negative_numbers(true)
            .help("Additional attempts, a retry_interval apart; with --wait or --no-wait"),
    )
    .arg(
        Arg::new("conflict-exit-code")
            .long("conflict-exit-code")
            .short('E')
            .value_name("CODE")
            .allow_negative_numbers(true)
            .help("Exit code if the lock is not acquired [default: 75]"),
    )
    .arg(
        Arg::new("lease-duration")
            .long("lease-duration")
            .value_name("DURATION")
            .allow_negative_numbers(true)
            .help("Time without a renewal after which others evict this holder; other durations are scaled"),
    )
    .arg(
        Arg::new("verbose")
            .long("verbose")
            .short('v')
            .help("Log the acquisition and how long it took, even without a wait")
            .action(ArgAction::SetTrue),
    )
    .arg(
        Arg::new("report-exit-code")
            .long("report-exit-code")
            .help("Print the exit code as a last line of JSON, for a parent that cannot wait for it; without CMD")
            .action(ArgAction::SetTrue),
    )
    .arg(
        Arg::new("quiet")
            .long("quiet")
            .short('q')
            .help("Do not report that others hold the lock, neither while waiting nor at the end; the exit code tells it")
            .action(ArgAction::SetTrue)
            .conflicts_with("verbose"),
    )
    .arg(command_words("Command to run; without one, the lock is held until standard input closes"))
}

/// Builds the arguments of `leasehold lock`.
///
/// # Errors
/// [`Misuse`] if they contradict each other.
pub fn lock(matches: &mut ArgMatches) -> Result<LockArgs, Misuse> {
    let name = lock_name(LOCK, matches)?;
    let slots = number(matches, "slots", 1, SLOTS_MAX)?.and_then(Slots::new);
    let want = match slots {
        Some(slots) => Want::Slot(slots),
        None if matches.get_flag("shared") => Want::Shared,
        None => Want::Exclusive,
    };
    let wait = match matches.get_flag("no-wait") {
        true => Some(Duration::ZERO),
        false => wait(matches)?,
    };
    let retries = number(matches, "retries", 0, u32::MAX)?;
    if retries.is_some() && wait.is_none() {
        return Err(wrong(
            LOCK,
            "--retries needs --wait DURATION or --no-wait: without them the first attempt waits indefinitely",
        ));
    }
    let code = exit_code(matches, "conflict-exit-code")?;
    let skipped = exit_code(matches, "skipped-exit-code")?;
    let at_least = time(LOCK, matches, "at-least", Duration::ZERO, AT_LEAST_MAX)?;
    let (sources, command) = (sources(matches), words(matches));
    need_a_command(LOCK, &OF_A_COMMAND, &sources, &command)?;
    let once_per = once_per(matches)?;
    if once_per.is_some() && command.is_empty() {
        return Err(wrong(
            LOCK,
            "--once-per needs a command, whose exit code 0 is the success: put it after --",
        ));
    }
    let report_exit_code = matches.get_flag("report-exit-code");
    if report_exit_code && !command.is_empty() {
        return Err(wrong(
            LOCK,
            "--report-exit-code is for a lock without a command: standard output belongs to the command",
        ));
    }
    Ok(LockArgs {
        name,
        want,
        at_least: at_least.and_then(AtLeast::new).unwrap_or_default(),
        once_per,
        skipped_exit_code: skipped.unwrap_or(exit::SKIPPED),
        wait,
        retries: retries.unwrap_or(0),
        conflict_exit_code: code.unwrap_or(exit::NOT_ACQUIRED),
        lease_duration: time(
            LOCK,
            matches,
            "lease-duration",
            LEASE_DURATION_MIN,
            LEASE_DURATION_MAX,
        )?,
        verbose: matches.get_flag("verbose"),
        report_exit_code,
        quiet: matches.get_flag("quiet"),
        command,
        sources,
    })
}

/// Parses `--once-per` and `--key`.
fn once_per(matches: &mut ArgMatches) -> Result<Option<OncePer>, Misuse> {
    let shortest = Duration::from_secs(1);
    let Some(period) = time(LOCK, matches, "once-per", shortest, PERIOD_MAX)? else {
        return Ok(None);
    };
    let key = match matches.remove_one::<String>("key") {
        None => WorkKey::default(),
        Some(key) => WorkKey::new(key).map_err(|error| wrong(LOCK, &format!("--key {error}")))?,
    };
    Ok(Some(OncePer { period, key }))
}

fn exit_code(matches: &mut ArgMatches, flag: &str) -> Result<Option<u8>, Misuse> {
    let code = number(matches, flag, 0, 255)?;
    Ok(code.and_then(|code| u8::try_from(code).ok()))
}

/// Parses `--wait`. A bare number is in seconds, as in flock(1).
fn wait(matches: &mut ArgMatches) -> Result<Option<Duration>, Misuse> {
    let text = matches.get_one::<String>("wait");
    let seconds = text.and_then(|text| text.parse().ok());
    match seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
        Some(wait) if wait <= WAIT_MAX => Ok(Some(wait)),
        Some(_) | None => time(LOCK, matches, "wait", Duration::ZERO, WAIT_MAX),
    }
}

fn number(matches: &mut ArgMatches, flag: &str, min: u32, max: u32) -> Result<Option<u32>, Misuse> {
    let Some(text) = matches.remove_one::<String>(flag) else {
        return Ok(None);
    };
    let number = text.parse().ok().filter(|n| (min..=max).contains(n));
    number.map(Some).ok_or_else(|| {
        let message = format!(
            "--{flag} {text:?} is not accepted: expected a whole number from {min} to {max}"
        );
        wrong(LOCK, &message)
    })
}

/// Returns the remedy for an option of flock(1) or consul that has another meaning here, or none.
pub fn habit(argument: &str) -> Option<&'static str> {
    Some(match argument {
        "-c" | "--command" => "put the command after --, as in -- sh -c 'COMMAND'",
        "-u" | "--unlock" => "a lock is free when its command has ended",
        "-o" | "--close" => "the command inherits no descriptor of the lock: leave it out",
        "-F" | "--no-fork" => "the command always runs under a guard: leave it out",
        _ => return None,
    })
}
