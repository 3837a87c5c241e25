//! Flags of `leasehold web`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint, value_parser};

use super::operating::by;
use crate::operators::WebArgs;
use leasehold_cli::misuse::{Misuse, wrong};
use leasehold_core::election::Identity;

/// Default of `--listen`.
const LISTEN: &str = "127.0.0.1:9403";
/// Appended to the author of actions, so that the history shows where they came from.
const FROM_PAGE: &str = " (web)";

const HELP: &str = "\
The page shows who leads what and since when, renewals as they are observed, tokens, queues of locks, requests, and the \
reasons of changes. It is read-only without --allow-actions. All local users may see it on a loopback address; any other \
address needs a token, which visitors type in or send as a bearer token. It speaks HTTP: put TLS in front of it.

Examples:
  leasehold web --mongodb-uri-file /etc/leasehold/uri
                             then open http://127.0.0.1:9403/
  leasehold web --allow-actions --by olga
                             the page can step down, transfer, pause, resume and cancel
  leasehold web --listen 0.0.0.0:9403 --token-file /etc/leasehold/web-token
                             for others too; the file is not readable by other users, and is read again when it changes

Exit codes: 0 stopped by a signal, 64 usage, 78 configuration, address or token file.";

/// Defines the command, from one with the flags of the connection.
pub(super) fn command(connected: Command) -> Command {
    connected
        .about("Serve a live page of all leases and locks of a collection")
        .after_help(HELP)
        .arg(
            Arg::new("listen")
                .long("listen")
                .value_name("ADDRESS")
                .help("Address and port of the page")
                .value_parser(value_parser!(SocketAddr))
                .default_value(LISTEN),
        )
        .arg(
            Arg::new("token-file")
                .long("token-file")
                .value_name("FILE")
                .help("File with the token that visitors need; required beyond a loopback address")
                .value_hint(ValueHint::FilePath)
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(
            Arg::new("allow-actions")
                .long("allow-actions")
                .help("Let visitors step down, transfer, pause, resume and cancel; requires the right to update")
                .action(ArgAction::SetTrue),
        )
        .arg(
            Arg::new("by")
                .long("by")
                .value_name("WHO")
                .help("Who acts on the page, recorded in the lease [default: USER@HOST], followed by \" (web)\"")
                .requires("allow-actions"),
        )
}

/// Builds the arguments.
pub(super) fn parse(path: &[&str], matches: &mut ArgMatches) -> Result<WebArgs, Misuse> {
    let listen: SocketAddr = matches.remove_one("listen").expect("it has a default");
    let token_file: Option<PathBuf> = matches.remove_one("token-file");
    if token_file.is_none() && !listen.ip().to_canonical().is_loopback() {
        let message = format!(
            "--listen {listen} is not a loopback address: it needs --token-file, with the token that visitors need"
        );
        return Err(wrong(path, &message));
    }
    let actions_by = match matches.get_flag("allow-actions") {
        true => {
            let by = by(path, matches)?;
            let author = Identity::new(format!("{by}{FROM_PAGE}"));
            Some(
                author
                    .map_err(|error| wrong(path, &format!("--by with \"{FROM_PAGE}\" {error}")))?,
            )
        }
        false => None,
    };
    Ok(WebArgs {
        listen,
        token_file,
        actions_by,
    })
}
