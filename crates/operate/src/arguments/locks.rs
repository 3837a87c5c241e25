//! Flags of `leasehold locks`, `locks break` and `locks prune`.

use std::time::Duration;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::operating::{TIMEOUT, timeout, timeout_of};
use crate::locks::{LocksArgs, LocksCommand};
use leasehold_cli::flags::{output, sources, time, wants_json, with_keys};
use leasehold_cli::lock_flags::{lock_help, lock_name, name};
use leasehold_cli::misuse::{Misuse, wrong};

/// Maximum of `--unused-for`: ten years.
const UNUSED_MAX: Duration = Duration::from_secs(3650 * 24 * 3600);

const LOCKS_HELP: &str = "\
Examples:
  leasehold locks --mongodb-uri-file /etc/leasehold/uri
                             who holds what, and who waits
  leasehold locks break nightly-report
                             remove expired holders and waiters
  leasehold locks prune --unused-for 30d
                             shrink the documents of unused locks

Exit codes: 0 done, 1 nothing to be done, 64 usage, 69 MongoDB unreachable or refusing, or it is not known whether a
write was applied, 78 configuration, or the name is a lease's.";

/// Defines `leasehold locks`.
pub fn locks_command() -> Command {
    let sections = ["identity", "mongodb", "log"];
    let with_store = |command| {
        with_keys(command, |key| lock_help(key, &sections)).arg(timeout(
            "Maximum time to wait for each answer of MongoDB [default: 30s]",
        ))
    };
    with_store(
        Command::new("locks")
            .about("Show the locks of a collection; break or prune them")
            .after_help(LOCKS_HELP),
    )
    .arg(output("text"))
    .subcommand(
        with_store(
            Command::new("break")
                .about("Remove expired holders and waiters of a lock"),
        )
        .arg(name())
        .arg(
            Arg::new("force")
                .long("force")
                .help("Remove all holders, live ones too (unsafe: two may then hold the lock); asks for confirmation")
                .action(ArgAction::SetTrue),
        )
        .arg(
            Arg::new("yes")
                .long("yes")
                .help("Do not ask for confirmation")
                .action(ArgAction::SetTrue)
                .requires("force"),
        ),
    )
    .subcommand(
        with_store(
            Command::new("prune")
                .about("Shrink the documents of unused locks, keeping their tokens"),
        )
        .arg(
            Arg::new("unused-for")
                .long("unused-for")
                .value_name("DURATION")
                .help("Only locks whose last holder ended this long ago, such as 30d")
                .required(true),
        ),
    )
}

/// Builds the arguments of `leasehold locks`.
///
/// # Errors
/// [`Misuse`] if they are wrong.
pub fn locks(mut matches: ArgMatches) -> Result<LocksArgs, Misuse> {
    let Some((name, mut inner)) = matches.remove_subcommand() else {
        return Ok(LocksArgs {
            command: LocksCommand::List {
                json: wants_json(&matches),
            },
            timeout: timeout_of(&["locks"], &mut matches)?.unwrap_or(TIMEOUT),
            sources: sources(&mut matches),
        });
    };
    if matches.value_source("output") == Some(ValueSource::CommandLine) {
        return Err(wrong(
            &["locks"],
            &format!("--output applies to the list of locks: leave it out with {name}"),
        ));
    }
    let command = match name.as_str() {
        "break" => LocksCommand::Break {
            name: lock_name(&["locks", "break"], &mut inner)?,
            force: inner.get_flag("force"),
            confirmed: inner.get_flag("yes"),
        },
        _ => LocksCommand::Prune {
            unused_for: time(
                &["locks", "prune"],
                &mut inner,
                "unused-for",
                Duration::ZERO,
                UNUSED_MAX,
            )?
            .unwrap_or_default(),
        },
    };
    let timeouts = (
        timeout_of(&["locks"], &mut matches)?,
        timeout_of(&["locks", &name], &mut inner)?,
    );
    let timeout = match timeouts {
        (Some(_), Some(_)) => return Err(given_twice("timeout", &name)),
        (outer, inner) => inner.or(outer).unwrap_or(TIMEOUT),
    };
    // The store may be specified before or after the subcommand.
    let (mut sources, inner) = (sources(&mut matches), sources(&mut inner));
    let mut inner_keys = inner.flags.iter().map(|(key, _)| *key);
    let twice = inner_keys.find(|key| sources.flags.iter().any(|(other, _)| other == key));
    if let Some(key) = twice {
        return Err(given_twice(&key.flag(), &name));
    }
    sources.files.extend(inner.files);
    sources.flags.extend(inner.flags);
    Ok(LocksArgs {
        command,
        timeout,
        sources,
    })
}

fn given_twice(flag: &str, subcommand: &str) -> Misuse {
    let message = format!("--{flag} is given before and after {subcommand}: give it once");
    wrong(&["locks"], &message)
}
