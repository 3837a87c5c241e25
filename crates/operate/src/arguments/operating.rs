//! Flags of the operators' commands: `leases`, `describe`, `step-down`, `transfer`, `pause`,
//! `resume`, `cancel`, `repair` and `web`.

use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::operators::{
    Author, OperatorArgs, OperatorCommand, REASON_MAX, RequestArgs, RequestKind, is_reason,
};
use leasehold_cli::flags::{output, sources, time, wants_json, with_keys};
use leasehold_cli::misuse::{Misuse, wrong};
use leasehold_config::Key;
use leasehold_core::election::{Identity, LeaseName, RESERVATION_MAX, Token};

/// The commands.
pub const COMMANDS: [&str; 9] = [
    "leases",
    "describe",
    "step-down",
    "transfer",
    "pause",
    "resume",
    "cancel",
    "repair",
    "web",
];

/// Default of `--timeout`.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);
/// Default of `--observe`: the default interval of renewals, and a second.
const OBSERVE: &str = "4s";
/// Default of `--reserve`.
const RESERVE: &str = "5s";
/// Minimum of `--timeout`: with less, MongoDB would seem unreachable.
const TIMEOUT_MIN: Duration = Duration::from_millis(100);
/// Maximum of `--timeout`: a workload may take a day to end.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);
/// Maximum of `--observe`: the longest lease duration.
const OBSERVE_MAX: Duration = Duration::from_secs(3600);

const EXIT_CODES: &str = "\
Exit codes: 0 done, or it was so already; 1 refused, or another outcome than requested; 3 under way, not done \
within --timeout; 64 usage, 69 MongoDB unreachable or refusing, 78 configuration, or there is no such lease; 128 + the number of a \
signal that ended it, after the line that says how to withdraw the request.";

/// Defines the commands.
pub fn commands() -> [Command; 9] {
    [
        leases(),
        describe(),
        waiting(request("step-down", "Request the leader to step down, and wait for the next leader")
            .after_help(examples("\
  leasehold step-down orders --reason 'node maintenance'
                             another candidate leads; this one only after that, or one lease duration later"))),
        waiting(request("transfer", "Request the leader to hand over to a candidate, and wait until that leads")
            .after_help(examples("\
  leasehold transfer orders --to orders-2
                             the lease is kept for orders-2 for 5s; then any candidate may lead"))
            .arg(
                Arg::new("to")
                    .long("to")
                    .value_name("IDENTITY")
                    .help("The candidate that shall lead")
                    .required(true),
            )
            .arg(
                Arg::new("reserve")
                    .long("reserve")
                    .value_name("DURATION")
                    .help("Time for which the other candidates leave the lease to it, 60s at most [default: 5s]"),
            )
            .arg(
                Arg::new("force")
                    .long("force")
                    .help("Do not check that it is a candidate with a healthy workload, which takes up to 3s if it is not")
                    .action(ArgAction::SetTrue),
            )),
        waiting(request("pause", "Prevent all candidates from leading, and wait until nobody leads")
            .after_help(examples("\
  leasehold pause orders --reason 'freeze until Monday'
                             the leader steps down; candidates stay connected"))),
        waiting(request("resume", "Let candidates lead again, and wait until one does")
            .after_help(examples("  leasehold resume orders"))),
        request("cancel", "Withdraw a request that the leader has not applied")
            .after_help(examples("  leasehold cancel orders")),
        repair(),
        super::web::command(connected(Command::new("web"))),
    ]
}

fn examples(examples: &str) -> String {
    format!("Examples:\n{examples}\n\n{EXIT_CODES}")
}

fn leases() -> Command {
    base(
        Command::new("leases")
            .about("List the leases of a collection: holders, tokens, renewals, requests")
            .after_help(
                "RENEWED is observed by this command on its own clock; \"> 4s\" means that no renewal was seen in \
                 that time.\n\nExamples:\n  leasehold leases --mongodb-uri-file /etc/leasehold/uri\n  leasehold \
                 leases --watch\n                             a live table on a terminal; else one JSON line per \
                 change, renewals excepted\n  leasehold leases --observe 0s --output json | jq -r '.[] | \
                 select(.state == \"free\").lease'",
            ),
    )
    .arg(
        Arg::new("watch")
            .long("watch")
            .short('w')
            .help("Watch and print changes")
            .action(ArgAction::SetTrue)
            .conflicts_with("observe"),
    )
    .arg(observe())
}

fn describe() -> Command {
    base(
        Command::new("describe")
            .about("Show a lease with its history, and whether the leader applies the standing request")
            .after_help(
                "Examples:\n  leasehold describe orders\n  leasehold describe orders --candidates --output json",
            ),
    )
    .arg(name())
    .arg(
        Arg::new("candidates")
            .long("candidates")
            .help("Ask all candidates to report; takes 3s and the right to update")
            .action(ArgAction::SetTrue),
    )
    .arg(observe())
}

fn repair() -> Command {
    request(
        "repair",
        "Raise the token of a lease after a backup was restored, if no candidate renews",
    )
    .after_help(
        "A restored document may have a token that was used before. Stop all candidates, find the highest token that \
         a log, a dashboard (leasehold_token) or a receiver of effects has seen, and raise it before they \
         start. The command watches for the lease duration of the holder in the document (24s if there is none) that \
         no candidate writes to it.\n\nExamples:\n  leasehold repair orders --token-at-least 4711\n\nExit codes: 0 done, or it was not \
         lower; 1 a candidate writes to the lease, or it was deleted; 64 usage, 69 MongoDB unreachable or refusing, 78 configuration, or there is \
         no such lease.",
    )
    .arg(
        Arg::new("token-at-least")
            .long("token-at-least")
            .value_name("N")
            .help("Lowest token of the lease afterwards; the next leader has a higher one")
            .allow_negative_numbers(true)
            .required(true),
    )
    .arg(
        Arg::new("create")
            .long("create")
            .help("Create the lease if it does not exist")
            .action(ArgAction::SetTrue),
    )
}

/// Defines a command that writes to a lease.
fn request(name_of_command: &'static str, about: &'static str) -> Command {
    base(Command::new(name_of_command).about(about))
        .arg(name())
        .arg(
            Arg::new("by")
                .long("by")
                .value_name("WHO")
                .help("Who asks, recorded in the lease [default: USER@HOST]"),
        )
        .arg(
            Arg::new("reason")
                .long("reason")
                .value_name("TEXT")
                .help("Why, recorded in the lease"),
        )
}

/// Adds the choice not to wait.
fn waiting(command: Command) -> Command {
    command.arg(
        Arg::new("no-wait")
            .long("no-wait")
            .help("Return as soon as the request is recorded")
            .action(ArgAction::SetTrue),
    )
}

fn base(command: Command) -> Command {
    connected(command).arg(output("text"))
}

/// Adds the flags of a command that connects to MongoDB.
fn connected(command: Command) -> Command {
    // These commands follow a change stream, or read.
    let used = |key: &Key| ["mongodb", "log"].contains(&key.section) && key.name != "watch";
    with_keys(command, |key| used(key).then_some(key.help)).arg(timeout(
        "Maximum time to wait for MongoDB, and then for the leader [default: 30s]",
    ))
}

/// Defines `--timeout`.
pub(super) fn timeout(help: &'static str) -> Arg {
    Arg::new("timeout")
        .long("timeout")
        .value_name("DURATION")
        .allow_negative_numbers(true)
        .help(help)
}

/// Parses `--timeout`, if it is given.
pub(super) fn timeout_of(
    path: &[&str],
    matches: &mut ArgMatches,
) -> Result<Option<Duration>, Misuse> {
    time(path, matches, "timeout", TIMEOUT_MIN, TIMEOUT_MAX)
}

fn observe() -> Arg {
    Arg::new("observe")
        .long("observe")
        .value_name("DURATION")
        .allow_negative_numbers(true)
        .help("Maximum time to wait until each holder has renewed [default: 4s]")
}

fn name() -> Arg {
    Arg::new("name")
        .value_name("NAME")
        .help("Name of the lease")
        .required(true)
}

/// Builds the arguments of one of the commands.
///
/// # Errors
/// [`Misuse`] if they are wrong.
pub fn parse(command: &str, matches: &mut ArgMatches) -> Result<OperatorArgs, Misuse> {
    let path = [command];
    let duration = |matches: &mut ArgMatches, flag, default: &str, max| {
        let given = time(&path, matches, flag, Duration::ZERO, max)?;
        let default = || humantime::parse_duration(default).unwrap_or_default();
        Ok::<_, Misuse>(given.unwrap_or_else(default))
    };
    let parsed = match command {
        "leases" => OperatorCommand::Leases {
            watch: matches.get_flag("watch"),
            observe: duration(matches, "observe", OBSERVE, OBSERVE_MAX)?,
        },
        "describe" => OperatorCommand::Describe {
            name: lease_name(&path, matches)?,
            observe: duration(matches, "observe", OBSERVE, OBSERVE_MAX)?,
            candidates: matches.get_flag("candidates"),
        },
        "web" => OperatorCommand::Web(super::web::parse(&path, matches)?),
        "repair" => OperatorCommand::Repair {
            name: lease_name(&path, matches)?,
            at_least: token(&path, matches)?,
            create: matches.get_flag("create"),
            author: author(&path, matches)?,
        },
        _ => OperatorCommand::Request(RequestArgs {
            name: lease_name(&path, matches)?,
            kind: match command {
                "step-down" => RequestKind::StepDown,
                "transfer" => RequestKind::Transfer {
                    to: text(&path, matches, "to")?,
                    reserve: duration(matches, "reserve", RESERVE, RESERVATION_MAX)?,
                    force: matches.get_flag("force"),
                },
                "pause" => RequestKind::Pause,
                "resume" => RequestKind::Resume,
                _ => RequestKind::Cancel,
            },
            seen: None,
            author: author(&path, matches)?,
            wait: command == "cancel" || !matches.get_flag("no-wait"),
        }),
    };
    Ok(OperatorArgs {
        timeout: timeout_of(&path, matches)?.unwrap_or(TIMEOUT),
        json: command != "web" && wants_json(matches),
        sources: sources(matches),
        command: parsed,
    })
}

fn lease_name(path: &[&str], matches: &mut ArgMatches) -> Result<LeaseName, Misuse> {
    let name: String = matches.remove_one("name").unwrap_or_default();
    LeaseName::new(name).map_err(|error| wrong(path, &format!("NAME {error}")))
}

pub(super) fn text(
    path: &[&str],
    matches: &mut ArgMatches,
    flag: &str,
) -> Result<Identity, Misuse> {
    let text: String = matches.remove_one(flag).unwrap_or_default();
    Identity::new(text).map_err(|error| wrong(path, &format!("--{flag} {error}")))
}

fn token(path: &[&str], matches: &mut ArgMatches) -> Result<Token, Misuse> {
    let text: String = matches.remove_one("token-at-least").unwrap_or_default();
    // The next acquisition needs a higher one.
    let token = text
        .parse()
        .ok()
        .and_then(Token::new)
        .filter(|token| *token < Token::MAX);
    token.ok_or_else(|| {
        let max = Token::MAX.get() - 1;
        let message = format!(
            "--token-at-least {text:?} is not accepted: expected a whole number from 0 to {max}"
        );
        wrong(path, &message)
    })
}

/// Returns `--by`, or USER@HOST.
pub(super) fn by(path: &[&str], matches: &mut ArgMatches) -> Result<Identity, Misuse> {
    match matches.contains_id("by") {
        true => text(path, matches, "by"),
        false => Ok(operator()),
    }
}

fn author(path: &[&str], matches: &mut ArgMatches) -> Result<Author, Misuse> {
    let by = by(path, matches)?;
    let reason: Option<String> = matches.remove_one("reason");
    if let Some(reason) = reason.as_ref().filter(|reason| !is_reason(reason)) {
        let length = reason.len();
        return Err(wrong(
            path,
            &format!(
                "--reason of {length} bytes is not accepted: expected 1 to {REASON_MAX} bytes without control characters"
            ),
        ));
    }
    Ok(Author { by, reason })
}

/// Returns true for a name of a user that fits into an identity, together with a host's.
fn is_plain(user: &str) -> bool {
    (1..=64).contains(&user.len()) && !user.chars().any(char::is_control)
}

/// Returns USER@HOST.
fn operator() -> Identity {
    let user = ["USER", "LOGNAME"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|user| is_plain(user)));
    let user = user.unwrap_or_else(|| format!("uid-{}", rustix::process::getuid().as_raw()));
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy();
    Identity::new(format!("{user}@{host}"))
        .or_else(|_| Identity::new("unknown"))
        .expect("a plain word is a legal identity")
}
