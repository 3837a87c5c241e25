//! `leasehold bury`: releases the lease of a daemon that has exited without a release.
//!
//! Like a restarted daemon, the command first proves that the previous process has exited. The
//! command then releases that process's claim instead of leading. It never acquires the lease.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::{Args, ValueHint};
use tokio::sync::{oneshot, watch};
use tracing::info;

use super::run::{known_home, options};
use super::trace;
use crate::calls::AnsweredCall;
use crate::clock;
use crate::config::{Config, UriSource};
use crate::election::{
    BootTime, Claim, Input, Notice, Order, ResourceName, Status, StoreAnswer, Token, Tunables,
};
use crate::elector::{ElectorBuilder, ElectorError, ElectorOptions, Surfaces};
use crate::exit;
use crate::log;
use crate::publish::directory::{Left, LeftClaim, StatusDirectory, Unproven, intended_directory};
use leasehold_cli::connecting;
use leasehold_cli::keys::{Configuration, DaemonKeys, with_layers};
use leasehold_cli::values::timeout;
use leasehold_cli::{answer, run_to_end};
use leasehold_host::CommandError;
use leasehold_host::duration::shown;
use leasehold_host::occupant::{Occupant, named};
use leasehold_host::privacy::hide_from_the_user;

const HELP: &str = "\
Use bury as ExecStopPost= of a systemd unit, or after a daemon was killed. Another replica then leads without waiting for the \
lease to expire. Pass the daemon's configuration, and run bury as the daemon's user, because the record of another user proves \
nothing. bury reads the status directory. It connects to MongoDB only if the record there names a claim, and the daemon, its \
guard and its command have provably exited. It never touches the directory of a running daemon, and never leads. If the daemon \
has hooks, the lease is left to expire, because services that a hook started may still run. If the daemon has no command, bury \
waits for lease.handoff_delay, and at least 2 s, because the workload may not have noticed the end of its daemon.

Examples:
  leasehold bury --lease orders --mongodb-uri-file /etc/leasehold/uri
  leasehold bury /run/leasehold/orders --lease orders --config site.yaml

Exit codes: 0 released, or nothing to release; 1 not released, because a process may still run, the record is damaged or \
belongs to another user, a status file cannot be removed, or the lease has expired; 64 usage; 69 MongoDB is \
unreachable or refuses a call; 78 configuration, or the directory belongs to another lease or a running daemon. After 1 and 69, the lease expires as \
usual.";

/// Arguments of `leasehold bury`.
#[derive(Debug, Args)]
#[command(after_help = with_layers(HELP))]
pub struct BuryArgs {
    /// The daemon's --status-directory
    #[arg(conflicts_with = "status.directory", value_hint = ValueHint::DirPath)]
    directory: Option<PathBuf>,
    #[command(flatten)]
    configuration: Configuration<DaemonKeys>,
    /// Maximum wait for MongoDB
    ///
    /// At most lease.lease_duration. Also limits the wait for a guard that is still ending its
    /// command.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = timeout)]
    timeout: Duration,
    /// End of the authority, if this process is the witness of a guard. Its standard input is then
    /// the claim file, which the guard has locked.
    #[arg(skip)]
    valid_until: Option<BootTime>,
}

impl BuryArgs {
    /// Makes this process the witness of a guard whose authority ends at `valid_until`.
    pub(super) fn of_a_guard(self, valid_until: BootTime) -> Self {
        Self {
            valid_until: Some(valid_until),
            ..self
        }
    }
}

/// Runs the command.
#[inline(never)]
pub fn run(args: &BuryArgs) -> Result<ExitCode, CommandError> {
    let config = args.configuration.sources.load().config()?;
    let json = config.log.format.json;
    let json = json.unwrap_or_else(log::is_json_by_default);
    log::start(config.log.level, log::LineFormat::of(json));
    hide_from_the_user();
    let outcome = bury(args, &config)?;
    let line = outcome.line(&config.lease.name);
    match args.valid_until {
        // The witness shares standard output with the command of the daemon.
        Some(_) => info!("{line}"),
        None => answer(format!("{line}\n").as_bytes())?,
    }
    Ok(ExitCode::from(outcome.exit()))
}

/// The outcome of `bury`, unless it failed.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Burial {
    Released(Token),
    Superseded,
    NoRecord(PathBuf),
    NoClaim(PathBuf),
    Locked(PathBuf, Vec<Occupant>),
    Damaged(PathBuf),
    Unproven(Unproven),
    Hooks,
    Expired,
    OtherUser(PathBuf, u32),
}

impl Burial {
    fn exit(&self) -> u8 {
        match self {
            Self::Locked(..)
            | Self::Damaged(_)
            | Self::Unproven(_)
            | Self::Hooks
            | Self::Expired
            | Self::OtherUser(..) => exit::NEGATIVE,
            _ => exit::DONE,
        }
    }

    fn line(&self, lease: &ResourceName) -> String {
        match self {
            Self::Released(token) => {
                format!("released lease {lease} (token {token}) of the daemon that exited")
            }
            Self::Superseded => {
                format!(
                    "lease {lease}: nothing to release; the daemon that exited no longer holds it"
                )
            }
            Self::NoRecord(path) => format!(
                "lease {lease}: nothing to release; no daemon has used status directory {}",
                path.display()
            ),
            Self::NoClaim(path) => format!(
                "lease {lease}: nothing to release; status directory {} records no claim of a daemon that exited",
                path.display()
            ),
            Self::Locked(path, by) => {
                let (directory, named) = (path.display(), named(by));
                match by.iter().all(|process| process.is_leasehold) {
                    true if by.is_empty() => format!(
                        "lease {lease} not released; a process that this user cannot see locks the claim file in {directory}, probably the guard, which is still ending the command; to fix: run bury again later, as the daemon's user"
                    ),
                    true => format!(
                        "lease {lease} not released yet; the guard of its daemon is still ending the command: {named}; to fix: run bury again when the command has exited"
                    ),
                    false => format!(
                        "lease {lease} not released; the claim file in {directory} is locked by {named}; to fix: stop it, then run bury again"
                    ),
                }
            }
            Self::Damaged(path) => format!(
                "lease {lease} not released; the claim record in {} is damaged; the lease expires by itself",
                path.display()
            ),
            Self::Unproven(Unproven::MayRun(pid)) => format!(
                "lease {lease} not released; process {pid} of its command may still run; the lease expires by itself"
            ),
            Self::Unproven(Unproven::NotRecorded) => format!(
                "lease {lease} not released; the claim record does not show whether a command runs; the lease expires by itself"
            ),
            Self::Unproven(Unproven::FileRemains(file, why)) => format!(
                "lease {lease} not released; cannot remove {file} from the status directory: {why}; to fix: remove it, then run bury again"
            ),
            Self::Hooks => format!(
                "lease {lease} not released; services that a hook started may still run; the lease expires by itself"
            ),
            Self::OtherUser(path, user) => format!(
                "lease {lease} not released, because the claim record in {} belongs to user {user}; to fix: run bury as this user",
                path.display()
            ),
            Self::Expired => format!("lease {lease} not released, because it has already expired"),
        }
    }
}

fn bury(args: &BuryArgs, config: &Config) -> Result<Burial, CommandError> {
    let lease = &config.lease.name;
    let configured = args.directory.as_deref();
    let configured = configured.or(config.status.directory.as_deref());
    let path = intended_directory(lease, configured);
    let inherited = args.valid_until.map(|_| inherited()).transpose();
    let inherited = inherited.map_err(CommandError::failed(exit::SYSTEM, "inherit the lock"))?;
    let left = StatusDirectory::open_left(&path, lease, inherited, args.timeout)?;
    let left = match left {
        Left::Record(left) => left,
        Left::Nothing => return Ok(Burial::NoRecord(path)),
        Left::Locked(by) => return Ok(Burial::Locked(path, by)),
        Left::OtherLease(other) => {
            let what = format!("lease.name = \"{lease}\"");
            let why = format!(
                "status directory {} belongs to lease {other}",
                path.display()
            );
            let error = CommandError::new(exit::CONFIGURATION, what).because(why);
            return Err(error.to_fix("pass --lease and the status directory of one daemon"));
        }
    };
    if let Some(unproven) = left.memory.unproven {
        return Ok(Burial::Unproven(unproven));
    }
    let owner = left.directory.other_owner();
    let owner = owner.map_err(CommandError::failed(exit::SYSTEM, "read the claim record"))?;
    if let Some(user) = owner {
        return Ok(Burial::OtherUser(path, user));
    }
    if left.memory.claim.is_none() {
        return Ok(match left.memory.damaged {
            true => Burial::Damaged(path),
            false => Burial::NoClaim(path),
        });
    }
    let hooks = &config.hooks;
    if left.ran_hook || !hooks.on_lead.is_empty() || !hooks.on_step_down.is_empty() {
        return Ok(Burial::Hooks);
    }
    run_to_end(exit::SYSTEM, release(args, config, &path, left))?
}

/// Returns the locked claim file, which a guard passes as standard input.
fn inherited() -> io::Result<File> {
    Ok(io::stdin().as_fd().try_clone_to_owned()?.into())
}

async fn release(
    args: &BuryArgs,
    config: &Config,
    path: &Path,
    left: LeftClaim,
) -> Result<Burial, CommandError> {
    let lease = &config.lease.name;
    let LeftClaim {
        directory,
        memory,
        ran_command,
        locked_at,
        ..
    } = left;
    let (_uri, uri) = watch::channel(config.mongodb.uri.clone());
    let home = known_home(lease, &directory);
    let trace = trace::from_environment()?;
    // A guard becomes a witness only after its command is gone.
    let drains = ran_command || args.valid_until.is_some();
    let mut options = options(config, drains, memory, home, uri, trace);
    // The daemon was killed, so the workload may have outlived the daemon, despite
    // workload.ends_first.
    options.workload_ends_first = false;
    if !drains {
        // The workload relies on the handoff delay of its daemon, which may be longer than the
        // delay given to `bury`.
        let default = Tunables::default().handoff_delay;
        options.handoff_delay = options.handoff_delay.max(default);
    }
    let begun = clock::boot_now();
    let noticed_at = begun + options.handoff_delay;
    // This process must end when the lease expires, because it locks the claim file that a
    // restarted daemon needs.
    let timings = &config.lease.timings;
    let expiry = match args.valid_until {
        Some(valid_until) => valid_until + (timings.lease_duration() - timings.renew_deadline()),
        // The time of the last renewal is unknown, but it is before `locked_at`, when this process
        // locked the claim.
        None => locked_at + timings.lease_duration(),
    };
    let until = expiry.min(noticed_at + args.timeout);
    if until <= begun {
        // The daemon was frozen before it was killed, so the lease has expired without a release.
        return Ok(Burial::Expired);
    }
    let mut first = Some(config.mongodb.uri.clone());
    let attempt = loop {
        let now = clock::boot_now();
        options.handoff_delay = noticed_at.since(now);
        let attempt = attempt(options.clone(), first.take(), until.since(now)).await?;
        if attempt.settled || attempt.older || clock::boot_now() >= until {
            break attempt;
        }
    };
    let token = attempt.token.unwrap_or(memory.token);
    // The record is left unchanged, because the configured collection may be wrong.
    if attempt.older && !attempt.released {
        let mongodb = &config.mongodb;
        let collection = format!("{}.{}", mongodb.database, mongodb.collection);
        let what = format!("lease {lease} (token {}) not released", memory.token);
        let why = format!("{collection} has no lease {lease} with this token or a higher one");
        let error = CommandError::new(exit::CONFIGURATION, what).because(why);
        return Err(error.to_fix("pass the daemon's mongodb.database and mongodb.collection, unless the lease was deleted or restored"));
    }
    if !attempt.settled {
        let waited = shown(until.since(begun));
        let what = format!("lease {lease} (token {token}) not released within {waited}");
        let why = attempt.failure;
        let why = why.unwrap_or_else(|| "MongoDB did not answer".to_owned());
        let error = CommandError::new(exit::STORE_UNREACHABLE, what).because(why);
        return Err(error.to_fix("nothing; the lease expires by itself"));
    }
    // The record must no longer name the claim, because a restored document may contain the claim
    // again.
    let recorded = directory.record(None, token.max(memory.token), memory.lease_longest);
    recorded.map_err(CommandError::failed(
        exit::CONFIGURATION,
        &format!("write the claim record in {}", path.display()),
    ))?;
    Ok(match attempt.released {
        true => Burial::Released(token),
        false => Burial::Superseded,
    })
}

/// Runs one candidate, which is asked to shut down before it can contend. The first attempt logs
/// the servers of the connection string if they do not answer.
async fn attempt(
    options: ElectorOptions,
    first: Option<UriSource>,
    limit: Duration,
) -> Result<Ended, CommandError> {
    let lease = options.lease.clone();
    let builder = ElectorBuilder::new(options);
    // The candidate handles this request before the answer to its first read, so it never acquires.
    let _ = builder.inputs().try_send(Input::Shutdown);
    let seen = Arc::new(Mutex::new(Seen::default()));
    let recorder = Recorder {
        status: builder.status(),
        seen: Arc::clone(&seen),
    };
    let store = builder.store_info();
    let connecting = tokio::spawn(async move {
        if let Some(uri) = first {
            let servers = connecting::unanswered(&uri, || store.borrow().is_some()).await;
            info!(%lease, servers, "connecting to MongoDB");
        }
    });
    let mut elector = builder.start(recorder);
    let ended = tokio::time::timeout(limit, elector.wait()).await;
    connecting.abort();
    if let Ok(Err(error @ ElectorError::Fault(_))) = ended {
        return Err(CommandError::failed(exit::SYSTEM, "run the election")(
            error,
        ));
    }
    elector.close().await;
    let seen = std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(Ended {
        settled: matches!(ended, Ok(Ok(()))),
        released: seen.released,
        failure: seen.failure,
        token: seen.token,
        older: seen.older,
    })
}

/// The result of one attempt.
struct Ended {
    /// True if the lease no longer names the claim.
    settled: bool,
    released: bool,
    failure: Option<String>,
    /// Token of the first document that was read, which is the claim's token if the claim was
    /// released.
    token: Option<Token>,
    /// True if the lease is missing, or older than the record.
    older: bool,
}

#[derive(Debug, Default)]
struct Seen {
    /// Token of the first document that was read.
    token: Option<Token>,
    released: bool,
    failure: Option<String>,
    older: bool,
}

/// Records whether the release was acknowledged, and the last failure of a call.
struct Recorder {
    status: watch::Receiver<Status>,
    seen: Arc<Mutex<Seen>>,
}

impl Surfaces for Recorder {
    fn flush(&mut self) -> oneshot::Receiver<bool> {
        // The files were removed before the candidate started.
        ().flush()
    }

    fn workload(&mut self, _: Order) {}

    /// The claim stays in the record until the end, so that an interrupted release can be repeated.
    fn remember(&mut self, _: Option<Claim>, _: Token, _: Duration) {}

    fn notice(&mut self, notice: &Notice) {
        if let Notice::StoreRolledBack { .. } = notice {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.older = true;
        }
    }

    fn calls_in_flight(&mut self, _: usize) {
        let status = self.status.borrow();
        if status.store != StoreAnswer::None {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.token.get_or_insert(status.token_highest);
        }
    }

    fn answered(&mut self, answered: &AnsweredCall) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let is_done = ["applied", "primary_only"].contains(&answered.outcome);
        seen.released |= answered.operation == "release" && is_done;
        if let Some(failure) = &answered.failure {
            seen.failure = Some(failure.to_string());
        }
    }
}
