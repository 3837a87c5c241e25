//! `leasehold status`: reads the leader from the status directory, without contacting the daemon or
//! MongoDB. A file that says "leader" is valid only until its deadline, and only during the boot in
//! which it was written.

#[cfg(test)]
mod any_file;
mod judge;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::{Args, ValueHint};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::Serialize;

pub use self::judge::{FileVerdict, Judgement, judge};
use crate::operators::did_you_mean;
use crate::operators::render::{or_dash, short};
use leasehold_cli::values::Output;
use leasehold_cli::{answer, unwritable};
use leasehold_clock as clock;
use leasehold_core::election::{BootTime, ResourceName, Role};
use leasehold_host::bounded_file::read_bounded;
use leasehold_host::{CommandError, exit};
use leasehold_status::dates::with_its_age;
use leasehold_status::directory::{JSON_FILE, roots};
use leasehold_status::render::StatusDocument;

/// Interval between reads with `--watch`. inotify cannot report that a deadline has passed.
const WATCH_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum size that is read. A daemon's status file has at most 2 KiB (four escaped names of 253
/// bytes).
const FILE_BYTES_MAX: usize = 64 * 1024;

const HELP: &str = "\
Examples:
  leasehold status orders
  leasehold status --directory /run/leasehold/orders --output json
  leasehold status --lease orders --watch

Exit codes: 0 leader; 1 not leader, or the file is stale; 2 unknown: no daemon runs here, or its file cannot be \
trusted; 64 usage, such as no name although several daemons run here.";

/// Arguments of `leasehold status`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = HELP)]
pub struct StatusArgs {
    /// The daemon's --status-directory
    ///
    /// With a NAME, DIR may also be the parent of the status directory.
    #[arg(long, value_name = "DIR", alias = "status-directory", value_hint = ValueHint::DirPath)]
    directory: Option<PathBuf>,
    /// Lease whose default status directory is read
    #[arg(long, value_name = "NAME")]
    lease: Option<String>,
    /// Name of the lease
    #[arg(conflicts_with = "lease")]
    name: Option<String>,
    #[allow(missing_docs, reason = "the field of `Output` has the help")]
    #[command(flatten)]
    pub output: Output,
    /// Watch and print changes
    #[arg(long)]
    pub watch: bool,
}

impl StatusArgs {
    /// Returns the lease whose default status directory is read.
    pub fn lease(&self) -> Option<&str> {
        self.lease.as_deref().or(self.name.as_deref())
    }
}

/// Runs the command.
pub fn run(args: &StatusArgs) -> Result<ExitCode, CommandError> {
    let (lease, json) = (args.lease(), args.output.json());
    let directory = match directory_of(args) {
        Err(unknown) if unknown.exit == exit::CANNOT_TELL && !args.watch => {
            return printed(&Judgement::cannot_tell(unknown.to_string()), json);
        }
        found => found?,
    };
    if args.watch {
        return match watch(&directory, lease, json) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
            Err(error) => Err(unwritable(error)),
            Ok(()) => Ok(ExitCode::SUCCESS),
        };
    }
    printed(&look(&directory, lease), json)
}

fn printed(judgement: &Judgement, json: bool) -> Result<ExitCode, CommandError> {
    let text = match json {
        true => to_json(judgement),
        false => to_text(judgement, clock::boot_now(), clock::wall_now()),
    };
    answer(text.as_bytes())?;
    Ok(ExitCode::from(judgement.verdict.exit_code()))
}

/// Reads the file in `directory`, and evaluates it at the current time.
pub fn look(directory: &Path, lease: Option<&str>) -> Judgement {
    let path = directory.join(JSON_FILE);
    // The clock is read after the file. If the clock were read first, a slow read of the file could
    // make an expired "leader" look valid.
    let text = read(&path);
    let now = clock::boot_now();
    let text = match text {
        Ok(text) => text,
        Err(error) => {
            let why = match error.kind() {
                ErrorKind::NotFound => missing(directory, lease),
                _ => format!("cannot read {}: {error}", path.display()),
            };
            return Judgement::cannot_tell(why);
        }
    };
    // If the boot is unknown, the file may be from another boot.
    match (clock::boot_id(), clock::time_namespace()) {
        (Ok(boot_id), Ok(namespace)) => judge(&text, lease, boot_id.as_deref(), namespace, now),
        (Err(error), _) | (_, Err(error)) => Judgement::cannot_tell(error.to_string()),
    }
}

/// If `lease` is given, `directory` may also be the parent of the status directory.
fn missing(directory: &Path, lease: Option<&str>) -> String {
    let mut looked = directory.join(JSON_FILE).display().to_string();
    if let Some(lease) = lease.filter(|lease| !directory.ends_with(lease)) {
        let below = directory.join(lease).join(JSON_FILE);
        looked += &format!(" or {}", below.display());
    }
    let near = lease.and_then(|lease| {
        let parent = match directory.ends_with(lease) {
            true => directory.parent()?,
            false => directory,
        };
        let places = [&[parent.to_owned()], &*roots()].concat();
        let known = directories_in(&places);
        let known = known.iter().filter_map(|path| path.file_name()?.to_str());
        let known: BTreeSet<_> = known.collect();
        did_you_mean(lease, &known.into_iter().collect::<Vec<_>>())
    });
    let tip = near.unwrap_or_else(|| {
        let start = "; to fix: start leasehold run, or pass the daemon's --directory";
        match lease {
            Some(lease) => format!("{start}; to ask MongoDB: leasehold describe {lease}"),
            None => start.to_owned(),
        }
    });
    format!("no daemon of this lease runs here: {looked} does not exist{tip}")
}

/// Returns, in alphabetical order, the directories with a status file below these parents.
fn directories_in(parents: &[PathBuf]) -> Vec<PathBuf> {
    let entries = parents
        .iter()
        .filter_map(|parent| fs::read_dir(parent).ok());
    let paths = entries.flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<_> = paths.filter(|path| path.join(JSON_FILE).exists()).collect();
    found.sort();
    found
}

fn read(path: &Path) -> io::Result<String> {
    let text = read_bounded(path, FILE_BYTES_MAX)?
        .ok_or_else(|| io::Error::other(format!("longer than {FILE_BYTES_MAX} bytes")))?;
    String::from_utf8(text).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}

fn directory_of(args: &StatusArgs) -> Result<PathBuf, CommandError> {
    let lease = args.lease().map(ResourceName::new).transpose();
    let lease = lease.map_err(|why| CommandError::new(exit::USAGE, format!("--lease: {why}")))?;
    match (&args.directory, lease) {
        (Some(parent), Some(lease)) if parent.join(lease.as_str()).join(JSON_FILE).exists() => {
            Ok(parent.join(lease.as_str()))
        }
        (Some(directory), _) => Ok(directory.clone()),
        (None, Some(lease)) => Ok(directory_of_lease(lease.as_str(), &roots())),
        (None, None) => only_directory(&roots()),
    }
}

/// Returns the first directory with a status file, in the order that daemons use to choose a
/// directory.
fn directory_of_lease(lease: &str, roots: &[PathBuf]) -> PathBuf {
    let places = || roots.iter().map(|root| root.join(lease));
    let found = places().find(|place| place.join(JSON_FILE).exists());
    found.or_else(|| places().next()).unwrap_or_default()
}

fn only_directory(roots: &[PathBuf]) -> Result<PathBuf, CommandError> {
    let found = directories_in(roots);
    let named = |paths: &[PathBuf], separator| {
        let names: Vec<_> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        names.join(separator)
    };
    match found.as_slice() {
        [] => {
            let what = format!(
                "no daemon has written a status below {}",
                named(roots, " or ")
            );
            let remedy = "start leasehold run, or pass the daemon's --directory";
            Err(CommandError::new(exit::CANNOT_TELL, what).to_fix(remedy))
        }
        several => {
            let looked = several.iter().map(|path| (path, look(path, None)));
            let (gone, live): (Vec<_>, Vec<_>) = looked.partition(|(_, found)| found.is_gone());
            match live.as_slice() {
                [] => Err(all_gone(&gone)),
                [(only, _)] => Ok((*only).clone()),
                _ => {
                    let live: Vec<_> = live.into_iter().map(|(path, _)| path.clone()).collect();
                    let remedy = format!(
                        "pass the name of a lease, or --directory {}",
                        named(&live, " | ")
                    );
                    Err(CommandError::new(exit::USAGE, "several daemons run here").to_fix(remedy))
                }
            }
        }
    }
}

/// Returns the error for a host where no daemon runs. The error names the last daemon's lease.
fn all_gone(gone: &[(&PathBuf, Judgement)]) -> CommandError {
    let documents = gone.iter().filter_map(|(_, gone)| gone.document.as_ref());
    let last = documents.max_by(|one, other| one.updated_at.cmp(&other.updated_at));
    let last = last.map_or_else(String::new, |last| {
        let ended = with_its_age(&last.updated_at, clock::wall_now());
        format!("; the last one, of lease {}, ended at {ended}", last.lease)
    });
    let remedy = "start leasehold run, or pass the name of a lease for its last status";
    CommandError::new(exit::CANNOT_TELL, format!("no daemon runs here{last}")).to_fix(remedy)
}

/// Prints changes until the reader of standard output has gone.
fn watch(directory: &Path, lease: Option<&str>, json: bool) -> io::Result<()> {
    let mut shown = None;
    loop {
        let judgement = look(directory, lease);
        let line = line(&judgement);
        if shown.as_ref() != Some(&line) {
            let date = humantime::format_rfc3339_millis(clock::wall_now());
            let text = match json {
                true => to_json(&judgement),
                false => format!("{date}  {line}\n"),
            };
            io::stdout().write_all(text.as_bytes())?;
            shown = Some(line);
        }
        if is_closed_within(WATCH_INTERVAL)? {
            return Ok(());
        }
    }
}

/// Waits for this time. Returns true if the reader of standard output closes the pipe meanwhile.
fn is_closed_within(time: Duration) -> io::Result<bool> {
    let stdout = io::stdout();
    let mut output = [PollFd::new(&stdout, PollFlags::empty())];
    let limit = Timespec::try_from(time).map_err(io::Error::other)?;
    match poll(&mut output, Some(&limit)) {
        Err(Errno::INTR) => Ok(false),
        polled => Ok(polled? > 0),
    }
}

/// Returns the document as JSON, with `leader` set to the verdict, and the reason for the verdict.
fn to_json(judgement: &Judgement) -> String {
    #[derive(Serialize)]
    struct Judged {
        #[serde(flatten)]
        document: Option<StatusDocument>,
        /// Set only if there is no document, because a document has its own `leader`.
        #[serde(skip_serializing_if = "Option::is_none")]
        leader: Option<bool>,
        fresh: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    }
    let leader = judgement.verdict == FileVerdict::Leader;
    let document = judgement.document.clone();
    let judged = Judged {
        leader: document.is_none().then_some(leader),
        document: document.map(|document| StatusDocument { leader, ..document }),
        fresh: judgement.is_fresh(),
        error: judgement.explanation(),
    };
    let json = serde_json::to_string(&judged);
    json.expect("strings, numbers and nulls can always be written as JSON") + "\n"
}

/// Formats a line that changes only when the leadership changes.
fn line(judgement: &Judgement) -> String {
    let verdict = judgement.verdict;
    let why = judgement.why.as_deref();
    let document = judgement.document.as_ref();
    let Some(document) = document.filter(|_| verdict != FileVerdict::CannotTell) else {
        return format!("cannot tell: {}", why.unwrap_or_default());
    };
    let (lease, role) = (&document.lease, &document.role);
    if let Some(why) = why {
        return format!("{lease}: {}, {why}", verdict.as_str());
    }
    match &document.holder {
        // The reason is omitted, because the first renewal changes it to "renewed".
        _ if verdict == FileVerdict::Leader => {
            let token = document.token.unwrap_or_default();
            format!("{lease}: leader, token {token}")
        }
        Some(holder) => {
            let (identity, token) = (&holder.identity, holder.token);
            match holder.unconfirmed {
                true => format!(
                    "{lease}: {role}, last recorded holder: {identity} with token {token} (not \
                     seen to renew yet)"
                ),
                false => format!("{lease}: {role}, {identity} leads with token {token}"),
            }
        }
        None if not_read(document) => format!("{lease}: {role}, the leader is not known"),
        None => {
            let reason = document.reason.as_deref().unwrap_or("-");
            format!("{lease}: {role}, no leader, reason {reason}")
        }
    }
}

fn to_text(judgement: &Judgement, now: BootTime, wall: SystemTime) -> String {
    let verdict = judgement.verdict;
    let Some(document) = &judgement.document else {
        let why = judgement.why.as_deref().unwrap_or_default();
        return format!("cannot tell  {why}\n");
    };
    let explanation = judgement.explanation().map(|why| format!(": {why}"));
    let explanation = explanation.unwrap_or_default();
    let holder = match &document.holder {
        Some(h) if judgement.is_fresh() => {
            let unconfirmed = match h.unconfirmed {
                true => ", last recorded, not seen to renew yet",
                false => "",
            };
            format!("{} (token {}){unconfirmed}", h.identity, h.token)
        }
        Some(_) => "no longer known".to_owned(),
        None if judgement.is_fresh() && !not_read(document) => "nobody".to_owned(),
        None => "not known".to_owned(),
    };
    let until = document.valid_until_boottime_ns.map(BootTime::from_nanos);
    let until = until.filter(|_| verdict == FileVerdict::Leader);
    let left = until.map(|until| short(until.since(now)));
    let (fresh, last_written) = match judgement.is_fresh() {
        true => ("yes", ""),
        false => ("no", ", as last written"),
    };
    let rows = [
        ("lease", document.lease.clone()),
        ("verdict", verdict.as_str().to_owned() + &explanation),
        ("role", document.role.clone() + last_written),
        ("candidate", document.identity.clone()),
        ("holder", holder),
        ("token", or_dash(document.token)),
        ("time left", or_dash(left)),
        ("since", with_its_age(&document.since, wall)),
        ("reason", or_dash(document.reason.as_ref())),
        ("updated", with_its_age(&document.updated_at, wall)),
        ("fresh", fresh.to_owned()),
    ];
    let error = document.store_error.as_ref().map(|error| {
        let since = with_its_age(&error.since, wall);
        ("store", format!("failing since {since}: {}", error.message))
    });
    rows.iter()
        .chain(&error)
        .map(|(name, value)| format!("{name:<11}{value}\n"))
        .collect()
}

/// Returns true if a document without a holder proves nothing, because MongoDB does not answer. For
/// example, a leader that stepped down at its deadline could not release the lease.
fn not_read(document: &StatusDocument) -> bool {
    document.role == Role::Unknown.as_str() || document.store_error.is_some()
}

#[cfg(test)]
mod tests;
