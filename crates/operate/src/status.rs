//! `leasehold status`: reports from the status directory who leads.
//!
//! The command contacts neither the daemon nor MongoDB. A file that says "leader" is trusted only
//! before its deadline, on the deadline's clock and in its boot.

#[cfg(test)]
mod any_file;
mod judge;

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, SystemTime};

use clap::{Args, ValueHint};
use serde::Serialize;

pub use self::judge::{Judgement, Verdict, judge};
use leasehold_cli::values::Output;
use leasehold_clock as clock;
use leasehold_core::election::{BootTime, ResourceName, Role};
use leasehold_host::exit;
use leasehold_status::directory::{JSON_FILE, read_regular, roots};
use leasehold_status::render::StatusDocument;

/// Interval of the checks of `--watch`. A change of leadership takes seconds, and a check is one
/// small read. inotify would not report that a deadline passes.
const WATCH_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum size of a status file. A status file has at most 2 KiB (four names of 253 bytes,
/// escaped); a larger file is not ours and is not read.
const FILE_BYTES_MAX: u64 = 64 * 1024;

const HELP: &str = "\
Examples:
  leasehold status orders
  leasehold status --directory /run/leasehold/orders --output json
  leasehold status --lease orders --watch";

/// Arguments of `leasehold status`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = HELP)]
pub struct StatusArgs {
    /// Status directory of the daemon
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "lease")]
    directory: Option<PathBuf>,
    /// Lease whose default status directory is read
    #[arg(long, value_name = "NAME")]
    lease: Option<String>,
    /// Same as --lease NAME
    #[arg(conflicts_with_all = ["lease", "directory"])]
    name: Option<String>,
    #[command(flatten)]
    output: Output,
    /// Watch and print changes
    #[arg(long)]
    pub watch: bool,
}

impl StatusArgs {
    /// Returns true for JSON, and false for text.
    pub fn json(&self) -> bool {
        self.output.json()
    }

    /// Returns the lease whose default status directory is read.
    pub fn lease(&self) -> Option<&str> {
        self.lease.as_deref().or(self.name.as_deref())
    }
}

/// The document of the file, with `leader` replaced by the verdict, and the basis of the verdict.
#[derive(Serialize)]
struct Judged<'a> {
    #[serde(flatten)]
    document: DocumentOrNone<'a>,
    fresh: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum DocumentOrNone<'a> {
    Document(&'a StatusDocument),
    None { leader: bool },
}

/// Runs the command. Exit codes: 0 leader, 1 not leader (also if stale), 2 cannot tell, 64 usage.
pub fn run(args: &StatusArgs) -> ExitCode {
    let directory = match directory_of(args) {
        Ok(directory) => directory,
        Err(message) => {
            let _ = writeln!(io::stderr(), "leasehold status: {message}");
            return ExitCode::from(exit::USAGE);
        }
    };
    let lease = args.lease();
    let result = if args.watch {
        watch(&directory, lease, args.json())
    } else {
        let judgement = look(&directory, lease);
        match print(&judgement, args.json()) {
            // The reader of the pipe has all that it wants, but a script that checks the exit code
            // still needs the verdict.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                Ok(judgement.verdict.exit_code())
            }
            printed => printed.map(|()| judgement.verdict.exit_code()),
        }
    };
    match result {
        Ok(code) => ExitCode::from(code),
        // Only `--watch` gets here, and its reader has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(
                io::stderr(),
                "leasehold status: cannot write the answer: {error}"
            );
            ExitCode::from(Verdict::CannotTell.exit_code())
        }
    }
}

/// Reads the file in `directory`, and judges it at the current time.
pub fn look(directory: &Path, lease: Option<&str>) -> Judgement {
    let path = directory.join(JSON_FILE);
    // The clock is read after the file. With an earlier time, a file that was slow to read would
    // count as leader beyond its deadline.
    let text = read(&path);
    let now = clock::boot_now();
    let text = match text {
        Ok(text) => text,
        Err(error) => {
            return Judgement::cannot_tell(format!("read {}: {error}", path.display()));
        }
    };
    // An unknown boot may differ from the file's boot.
    match (clock::boot_id(), clock::time_namespace()) {
        (Ok(boot_id), Ok(namespace)) => {
            judge(&text, lease, boot_id.as_deref(), now).in_time_namespace(namespace)
        }
        (Err(error), _) | (_, Err(error)) => Judgement::cannot_tell(error.to_string()),
    }
}

fn read(path: &Path) -> io::Result<String> {
    let text = read_regular(path, FILE_BYTES_MAX)?;
    String::from_utf8(text).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}

fn directory_of(args: &StatusArgs) -> Result<PathBuf, String> {
    if let Some(directory) = &args.directory {
        return Ok(directory.clone());
    }
    match args.lease() {
        Some(lease) => {
            let lease = ResourceName::new(lease).map_err(|e| format!("--lease: {e}"))?;
            Ok(directory_of_lease(lease.as_str(), &roots()))
        }
        None => only_directory(&roots()),
    }
}

/// Returns the first directory with a status file, in the order in which daemons choose theirs.
fn directory_of_lease(lease: &str, roots: &[PathBuf]) -> PathBuf {
    let mut places = roots.iter().map(|root| root.join(lease));
    let first = places.next().unwrap_or_default();
    std::iter::once(first.clone())
        .chain(places)
        .find(|place| place.join(JSON_FILE).exists())
        .unwrap_or(first)
}

fn only_directory(roots: &[PathBuf]) -> Result<PathBuf, String> {
    let entries = roots.iter().filter_map(|root| fs::read_dir(root).ok());
    let mut found: Vec<PathBuf> = entries
        .flat_map(|dir| dir.filter_map(Result::ok))
        .map(|entry| entry.path())
        .filter(|path| path.join(JSON_FILE).exists())
        .collect();
    found.sort();
    match found.as_slice() {
        [only] => Ok(only.clone()),
        [] => Err("no status directory found; pass --directory or --lease".to_owned()),
        several => {
            let names: Vec<_> = several.iter().map(|p| p.display().to_string()).collect();
            Err(format!(
                "several status directories found; pass one of: --directory {}",
                names.join(" | ")
            ))
        }
    }
}

fn watch(directory: &Path, lease: Option<&str>, json: bool) -> io::Result<u8> {
    let mut shown = None;
    loop {
        let judgement = look(directory, lease);
        let line = line(&judgement);
        if shown.as_ref() != Some(&line) {
            if json {
                print(&judgement, true)?;
            } else {
                let now = clock::boot_now();
                let date = humantime::format_rfc3339_millis(clock::wall_at(now, now));
                writeln!(io::stdout(), "{date}  {line}")?;
            }
            shown = Some(line);
        }
        thread::sleep(WATCH_INTERVAL);
    }
}

fn print(judgement: &Judgement, json: bool) -> io::Result<()> {
    let text = if json {
        to_json(judgement)?
    } else {
        to_text(judgement, clock::boot_now(), clock::wall_now())
    };
    io::stdout().write_all(text.as_bytes())
}

fn to_json(judgement: &Judgement) -> io::Result<String> {
    let mut document = judgement.document.clone();
    if let Some(document) = &mut document {
        document.leader = judgement.verdict == Verdict::Leader;
    }
    let explanation = judgement.explanation();
    let judged = Judged {
        document: match &document {
            Some(document) => DocumentOrNone::Document(document),
            None => DocumentOrNone::None { leader: false },
        },
        fresh: judgement.fresh,
        error: explanation.as_deref(),
    };
    Ok(serde_json::to_string(&judged)? + "\n")
}

/// Formats one line without anything that changes while the leadership is unchanged.
fn line(judgement: &Judgement) -> String {
    let (document, why) = (&judgement.document, judgement.why.as_deref());
    let Some(document) = document else {
        return format!("cannot tell: {}", why.unwrap_or("no status"));
    };
    let holder = document.holder.as_ref();
    let reason = document.reason.as_deref().unwrap_or("-");
    let lease = &document.lease;
    match judgement.verdict {
        // The reason is omitted, because it changes from "acquired" to "renewed" with the first
        // renewal.
        Verdict::Leader => {
            let token = document.token.unwrap_or_default();
            format!("{lease}: leader, token {token}")
        }
        Verdict::NotLeader => match (why, holder) {
            (Some(why), _) => format!("{lease}: not leader, {why}"),
            (None, Some(h)) => {
                let (identity, token) = (&h.identity, h.token);
                format!(
                    "{lease}: {}, {identity} leads with token {token}",
                    document.role
                )
            }
            (None, None) if not_read(document) => {
                format!("{lease}: {}, the leader is not known", document.role)
            }
            (None, None) => format!("{lease}: {}, no leader, reason {reason}", document.role),
        },
        Verdict::CannotTell => format!("cannot tell: {}", why.unwrap_or("no status")),
    }
}

fn to_text(judgement: &Judgement, now: BootTime, wall: SystemTime) -> String {
    let Some(document) = &judgement.document else {
        let why = judgement.why.as_deref().unwrap_or("no status");
        return format!("cannot tell  {why}\n");
    };
    let verdict = match judgement.verdict {
        Verdict::Leader => "leader".to_owned(),
        Verdict::NotLeader | Verdict::CannotTell => {
            let word = match judgement.verdict {
                Verdict::CannotTell => "cannot tell",
                Verdict::Leader | Verdict::NotLeader => "not leader",
            };
            match judgement.explanation() {
                Some(why) => format!("{word}: {why}"),
                None => word.to_owned(),
            }
        }
    };
    let holder = match &document.holder {
        Some(h) if judgement.fresh => format!("{} (token {})", h.identity, h.token),
        Some(_) => "no longer known".to_owned(),
        None if !judgement.fresh => "not known".to_owned(),
        None if not_read(document) => "not known".to_owned(),
        None => "nobody".to_owned(),
    };
    let until = document.valid_until_boottime_ns.map(BootTime::from_nanos);
    let left = until
        .filter(|_| judgement.verdict == Verdict::Leader)
        .map_or_else(
            || "-".to_owned(),
            |until| format!("{:.1} s", until.since(now).as_secs_f64()),
        );
    let token = document
        .token
        .map_or_else(|| "-".to_owned(), |t| t.to_string());
    let dated = |date: &str| match age(date, wall) {
        Some(age) => format!("{date} ({age} ago)"),
        None => date.to_owned(),
    };
    let rows = [
        ("lease", document.lease.clone()),
        ("verdict", verdict),
        ("role", document.role.clone()),
        ("candidate", document.identity.clone()),
        ("holder", holder),
        ("token", token),
        ("time left", left),
        ("since", dated(&document.since)),
        (
            "reason",
            document.reason.clone().unwrap_or_else(|| "-".to_owned()),
        ),
        ("updated", dated(&document.updated_at)),
        (
            "fresh",
            if judgement.fresh { "yes" } else { "no" }.to_owned(),
        ),
    ];
    let error = document.store_error.as_ref().map(|error| {
        let age = age(&error.since, wall).map_or_else(String::new, |age| format!(" (for {age})"));
        ("store", error.message.clone() + &age)
    });
    rows.iter()
        .chain(&error)
        .map(|(name, value)| format!("{name:<11}{value}\n"))
        .collect()
}

/// Returns true if the daemon has not read the store at all, or not for a lease duration. The
/// daemon then knows neither a holder nor that the lease is free.
fn not_read(document: &StatusDocument) -> bool {
    document.role == Role::Unknown.as_str()
}

/// Returns the age of a date, for humans. The wall clock may have been changed in between.
fn age(date: &str, wall: SystemTime) -> Option<String> {
    let then = humantime::parse_rfc3339(date).ok()?;
    let age = wall.duration_since(then).ok()?;
    Some(humantime::format_duration(Duration::from_secs(age.as_secs())).to_string())
}

#[cfg(test)]
mod tests;
