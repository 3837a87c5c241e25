//! Flags of `leasehold check`.

use std::time::Duration;

use clap::{Arg, ArgMatches, Command};

use crate::check::CheckArgs;
use leasehold_cli::flags::{LAYERS, output, sources, wants_json, with_configuration};
use leasehold_cli::misuse::{Misuse, wrong};
use leasehold_config::duration;

/// Bounds of `--timeout`: with less, healthy servers would fail; with more, a terminal shows nothing
/// for too long.
const TIMEOUT_MIN: Duration = Duration::from_secs(1);
const TIMEOUT_MAX: Duration = Duration::from_secs(600);

/// Defines `leasehold check`.
pub fn check_command() -> Command {
    with_configuration(
        Command::new("check")
            .about("Examine the installation that run would use, without changing anything")
            .after_help(format!(
                "{LAYERS}\n\nExamples:\n  leasehold check --lease orders --mongodb-uri-file \
                 /etc/leasehold/uri\n                             before the first start: is \
                 everything there, and fast enough?\n  leasehold check --config \
                 /etc/leasehold.toml --output json | jq '.checks[] | select(.result == \
                 \"failed\")'\n                             in a pipeline or a probe\n\nIt needs \
                 the same four rights on the collection as run, and no others. While a daemon of \
                 the same lease runs on this host, its directory and port count as in order.\n\n\
                 Exit codes: 0 all is well, 1 warnings, 2 a check failed, 64 usage, 78 configuration."
            )),
    )
    .arg(
        Arg::new("timeout")
            .long("timeout")
            .value_name("DURATION")
            .help("Time limit of each check [default: 10s]")
            .allow_negative_numbers(true),
    )
    .arg(output("text"))
}

/// Builds the arguments of `leasehold check`.
///
/// # Errors
/// [`Misuse`] if they are wrong.
pub fn check(matches: &mut ArgMatches) -> Result<CheckArgs, Misuse> {
    const DEFAULT: &str = "10s";
    let text = matches.remove_one::<String>("timeout");
    let text = text.as_deref().unwrap_or(DEFAULT);
    let timeout = duration(text, TIMEOUT_MIN, TIMEOUT_MAX).map_err(|expected| {
        let message = format!("--timeout {text:?} is not accepted: {expected}");
        wrong(&["check"], &message)
    })?;
    Ok(CheckArgs {
        json: wants_json(matches),
        sources: sources(matches),
        timeout,
    })
}
