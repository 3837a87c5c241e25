//! Flags of `leasehold replicas`.

use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::replicas::ReplicasArgs;
use leasehold_cli::flags::{output, wants_json};
use leasehold_cli::misuse::{Misuse, wrong};
use leasehold_config::duration;

/// Maximum of `--wait`: a rollout that takes longer than an hour has failed.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// Defines `leasehold replicas`.
pub fn replicas_command() -> Command {
    Command::new("replicas")
        .about("Ask every replica of a lease over HTTP: exit 0 if exactly one leads, on one store")
        .after_help(
            "Each HOST is resolved, and all of its addresses are asked for /status: the name of a headless Service \
             stands for all of its pods. It needs no configuration and no access to MongoDB.\n\nExamples:\n  \
             leasehold replicas orders-headless:9402 --expect 2 --wait 1m\n                             after a \
             rollout\n  leasehold replicas 10.0.0.1:9402 10.0.0.2:9402 --lease orders --output json\n\nExit codes: 0 \
             every replica answers, one leads, and all contend for one lease on one store; 1 a check failed, with the \
             reason; 64 usage.",
        )
        .arg(
            Arg::new("replicas")
                .value_name("HOST:PORT")
                .help("HTTP address of one or more replicas")
                .required(true)
                .action(ArgAction::Append)
                .num_args(1..)
                .value_parser(host_and_port),
        )
        .arg(
            Arg::new("lease")
                .long("lease")
                .value_name("NAME")
                .help("Name of the lease that all of them contend for [default: the same one]"),
        )
        .arg(
            Arg::new("expect")
                .long("expect")
                .value_name("N")
                .help("Number of replicas [default: 1 or more]")
                .value_parser(value_parser!(u32).range(1..)),
        )
        .arg(
            Arg::new("wait")
                .long("wait")
                .value_name("DURATION")
                .help("Ask again each second for at most this time, such as 1m, until all checks pass [default: 0s]")
                .allow_negative_numbers(true),
        )
        .arg(output("text"))
}

/// Accepts a name or an address, and a port.
fn host_and_port(text: &str) -> Result<String, String> {
    let split = text.rsplit_once(':');
    let valid = split.is_some_and(|(host, port)| {
        let bracketed = host.starts_with('[') && host.ends_with(']');
        !host.is_empty()
            && (bracketed || !host.contains(':'))
            && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    match valid {
        true => Ok(text.to_owned()),
        false => Err("expected HOST:PORT, such as orders-headless:9402 or [::1]:9402".to_owned()),
    }
}

/// Builds the arguments of `leasehold replicas`.
///
/// # Errors
/// [`Misuse`] if they are wrong.
pub fn replicas(matches: &mut ArgMatches) -> Result<ReplicasArgs, Misuse> {
    let text = matches.remove_one::<String>("wait");
    let text = text.as_deref().unwrap_or("0s");
    let wait = duration(text, Duration::ZERO, WAIT_MAX).map_err(|expected| {
        let message = format!("--wait {text:?} is not accepted: {expected}");
        wrong(&["replicas"], &message)
    })?;
    let places = matches.remove_many("replicas");
    Ok(ReplicasArgs {
        places: places.map(Iterator::collect).unwrap_or_default(),
        lease: matches.remove_one("lease"),
        expect: matches.remove_one("expect"),
        wait,
        json: wants_json(matches),
    })
}
