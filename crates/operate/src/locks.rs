//! `leasehold locks`: lists, breaks and prunes locks, for operators. It removes only expired
//! entries unless `--force` is given.

mod breaking;
mod calls;
mod pruning;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use self::calls::Calls;
use crate::operators::arguments::ConnectionArgs;
use crate::operators::render::{entry_object, or_dash, table};
use crate::operators::{announced, configured};
use crate::table::{Row, text};
use leasehold_cli::answer;
use leasehold_cli::keys::LocksKeys;
use leasehold_cli::store_options::of_locks;
use leasehold_cli::values::{Output, between, name};
use leasehold_core::election::ResourceName;
use leasehold_core::lock::Entry;
use leasehold_host::{CommandError, exit};
use leasehold_mongodb::store::mongo::operators::{CollectionEntry, Content, MongoCollection};
use leasehold_status::render::date;

/// Maximum of `--unused-for`: ten years.
const UNUSED_MAX: Duration = Duration::from_secs(3650 * 24 * 3600);

const HELP: &str = "\
Examples:
  leasehold locks --mongodb-uri-file /etc/leasehold/uri
                             who holds what, and who waits
  leasehold locks break nightly-report
                             remove expired holders and waiters
  leasehold locks prune --unused-for 30d
                             shrink the documents of unused locks

Exit codes: 0 done, 1 nothing to be done, 64 usage, 69 MongoDB unreachable or refusing, or it is not known whether a
write was applied, 78 configuration, or the name is a lease's.";

/// Arguments of `leasehold locks`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct LocksArgs {
    // May be given before or after the subcommand.
    #[command(flatten)]
    connection: ConnectionArgs<LocksKeys>,
    #[command(flatten)]
    output: Output,
    #[command(subcommand)]
    command: Option<LocksCommand>,
}

#[derive(Debug, Subcommand)]
enum LocksCommand {
    /// Remove expired holders and waiters of a lock
    Break(BreakArgs),
    /// Shrink the documents of unused locks, keeping their tokens
    Prune(PruneArgs),
}

/// The lock that a command is for.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct LockName {
    /// Name of the lock
    #[arg(value_name = "NAME", value_parser = name)]
    name: Option<ResourceName>,
    /// Name of the lock, as a flag
    #[arg(long = "name", value_name = "NAME", value_parser = name)]
    flag: Option<ResourceName>,
}

impl LockName {
    fn get(&self) -> &ResourceName {
        let given = self.name.as_ref().or(self.flag.as_ref());
        given.expect("clap requires one of them")
    }
}

#[derive(Debug, Args)]
struct BreakArgs {
    #[command(flatten)]
    connection: ConnectionArgs<LocksKeys>,
    #[command(flatten)]
    lock: LockName,
    /// Remove live holders too (unsafe)
    ///
    /// Removes all holders; two may then hold the lock. Asks for confirmation.
    #[arg(long)]
    force: bool,
    /// Do not ask for confirmation
    #[arg(long, requires = "force")]
    yes: bool,
}

#[derive(Debug, Args)]
struct PruneArgs {
    #[command(flatten)]
    connection: ConnectionArgs<LocksKeys>,
    /// Minimum time since the last holder
    ///
    /// Only locks whose last holder ended this long ago, such as 30d.
    #[arg(long, value_name = "DURATION", value_parser = between(Duration::ZERO, UNUSED_MAX))]
    unused_for: Duration,
    #[command(flatten)]
    output: Output,
}

impl LocksArgs {
    fn inner(&self) -> Option<(&'static str, &ConnectionArgs<LocksKeys>)> {
        Some(match self.command.as_ref()? {
            LocksCommand::Break(args) => ("break", &args.connection),
            LocksCommand::Prune(args) => ("prune", &args.connection),
        })
    }

    /// Returns the error for a flag that is given before and after the subcommand.
    pub fn contradiction(&self) -> Option<String> {
        let outer = &self.connection;
        let (subcommand, inner) = self.inner()?;
        let before = &outer.configuration.sources.flags;
        let mut after = inner.configuration.sources.flags.iter();
        let twice = after.find(|(key, _)| before.iter().any(|(other, _)| other == key));
        let flag = match (twice, outer.timeout.and(inner.timeout)) {
            (Some((key, _)), _) => key.flag(),
            (None, Some(_)) => "timeout".to_owned(),
            (None, None) => return None,
        };
        Some(format!(
            "--{flag} is given before and after {subcommand}: give it once"
        ))
    }

    /// Returns the connection from both sides of the subcommand.
    fn connection(&self) -> ConnectionArgs<LocksKeys> {
        let mut connection = self.connection.clone();
        if let Some((_, inner)) = self.inner() {
            let sources = &mut connection.configuration.sources;
            let inner_sources = &inner.configuration.sources;
            sources.files.extend_from_slice(&inner_sources.files);
            sources.flags.extend_from_slice(&inner_sources.flags);
            connection.timeout = connection.timeout.or(inner.timeout);
        }
        connection
    }
}

/// Runs the requested action.
pub fn run(args: LocksArgs) -> Result<ExitCode, CommandError> {
    let connection = args.connection();
    configured(&connection, false, async |config| {
        let locks = MongoCollection::brief(of_locks(&config, config.timings));
        let calls = Calls::new(&locks, &config, connection.timeout());
        let command = async {
            match args.command {
                None => list(&calls, args.output.json()).await,
                Some(LocksCommand::Break(args)) => {
                    let lock = calls.of(args.lock.get().clone());
                    let round_trip = config.timings.operation_timeout();
                    breaking::run(&lock, args.force, args.yes, round_trip).await
                }
                Some(LocksCommand::Prune(prune)) => {
                    let json = args.output.json() || prune.output.json();
                    pruning::run(&calls, prune.unused_for, json).await
                }
            }
        };
        let answered = announced(&locks, &config.mongodb.uri, command).await;
        locks.shut_down().await;
        answered.map(Into::into)
    })
}

async fn list(calls: &Calls<'_>, json: bool) -> Result<u8, CommandError> {
    answer(listing(&calls.list().await?, json).as_bytes())?;
    Ok(exit::DONE)
}

fn listing(locks: &[CollectionEntry], json: bool) -> String {
    if json {
        return format!("{:#}\n", locks.iter().map(object).collect::<Value>());
    }
    if locks.is_empty() {
        return "no locks\n".to_owned();
    }
    let header = ["LOCK", "TOKEN", "STATE", "MODE", "IDENTITY", "SINCE"];
    text(&table(header, locks.iter().flat_map(rows)), false)
}

/// Returns a row for each holder and waiter of a lock, or one row for the lock.
fn rows(lock: &CollectionEntry) -> Vec<Row> {
    let row = |token: String, state: &str, slots: u32, entry: Option<&Entry>| {
        Row::new([
            lock.name.clone(),
            token,
            state.to_owned(),
            or_dash(entry.map(|entry| mode(entry, slots))),
            or_dash(entry.map(|entry| &entry.owner.identity)),
            or_dash(entry.map(|entry| date(entry.owner.acquired_at))),
        ])
    };
    match &lock.content {
        Content::Lock(record) => {
            let document = &record.lock;
            let (newest, slots) = (document.token, document.slots);
            let holders = document.holders.iter().map(|entry| (state(entry), entry));
            let entries = holders.chain(document.queue.iter().map(|entry| ("waits", entry)));
            let entries = entries.map(|(state, entry)| {
                let token = entry.token.unwrap_or(newest).to_string();
                row(token, state, slots, Some(entry))
            });
            let rows: Vec<_> = entries.collect();
            match rows.is_empty() {
                true => vec![row(newest.to_string(), "free", slots, None)],
                false => rows,
            }
        }
        Content::Foreign(why) => {
            vec![row("-".to_owned(), &format!("not a lock: {why}"), 0, None)]
        }
        // Not in the scope.
        Content::Lease(_) => Vec::new(),
    }
}

fn state(holder: &Entry) -> &'static str {
    match holder.is_confirmed() {
        true if holder.work_done && holder.min_hold.is_zero() => "ended",
        true if holder.work_done => "kept",
        true => "held",
        false => "granted",
    }
}

fn mode(entry: &Entry, slots: u32) -> String {
    match (slots, entry.slot) {
        (0, _) => entry.mode.as_str().to_owned(),
        (slots, Some(slot)) => format!("slot {slot} of {slots}"),
        (slots, None) => format!("one of {slots} slots"),
    }
}

fn object(lock: &CollectionEntry) -> Value {
    match &lock.content {
        Content::Lock(record) => {
            let document = &record.lock;
            let successes = document.successes.iter();
            let successes =
                successes.map(|it| json!({ "key": it.key.as_str(), "at": date(it.at) }));
            json!({
                "lock": lock.name,
                "token": document.token.get(),
                "slots": document.slots,
                "holders": document.holders.iter().map(entry_object).collect::<Value>(),
                "queue": document.queue.iter().map(entry_object).collect::<Value>(),
                "successes": successes.collect::<Value>(),
            })
        }
        Content::Foreign(why) => json!({ "lock": lock.name, "foreign": why }),
        Content::Lease(_) => json!({ "lock": lock.name }),
    }
}
