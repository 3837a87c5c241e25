//! Flags of `leasehold status`.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint, value_parser};
use leasehold_cli::flags::{output, wants_json};

use crate::status::StatusArgs;

/// Defines `leasehold status`.
pub fn status_command() -> Command {
    Command::new("status")
        .about("Query the local daemon: exit 0 if it leads, 1 if not, 2 if unknown")
        .after_help(
            "Examples:\n  leasehold status orders\n  leasehold status --directory \
             /run/leasehold/orders --output json\n  leasehold status --lease orders --watch",
        )
        .arg(
            Arg::new("directory")
                .long("directory")
                .value_name("DIR")
                .help("Status directory of the daemon")
                .value_hint(ValueHint::DirPath)
                .value_parser(value_parser!(PathBuf))
                .conflicts_with("lease"),
        )
        .arg(
            Arg::new("lease")
                .long("lease")
                .value_name("NAME")
                .help("Lease whose default status directory is read"),
        )
        .arg(
            Arg::new("name")
                .value_name("NAME")
                .help("Same as --lease NAME")
                .conflicts_with_all(["lease", "directory"]),
        )
        .arg(output("text"))
        .arg(
            Arg::new("watch")
                .long("watch")
                .help("Watch and print changes")
                .action(ArgAction::SetTrue),
        )
}

/// Builds the arguments of `leasehold status`.
pub fn status(matches: &mut ArgMatches) -> StatusArgs {
    StatusArgs {
        directory: matches.remove_one("directory"),
        lease: matches
            .remove_one("lease")
            .or_else(|| matches.remove_one("name")),
        json: wants_json(matches),
        watch: matches.get_flag("watch"),
    }
}
