//! Arguments of `leasehold web`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::super::arguments::{Connection, by};
use leasehold_cli::values::{expected, identity};
use leasehold_core::election::Identity;

/// Appended to the author of actions, so that the history shows where they came from.
const FROM_PAGE: &str = " (web)";

pub(in crate::operators) const HELP: &str = "\
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

/// Arguments of `leasehold web`.
#[derive(Debug, Args)]
pub struct WebArgs {
    #[command(flatten)]
    pub(in crate::operators) connection: Connection,
    /// Address and port of the page
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9403")]
    pub(super) listen: SocketAddr,
    /// File with the token that visitors need; required beyond a loopback address
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) token_file: Option<PathBuf>,
    /// Let visitors step down, transfer, pause, resume and cancel; requires the right to update
    #[arg(long)]
    allow_actions: bool,
    /// Author of the actions on the page, recorded in the lease [default: USER@HOST], followed by " (web)"
    #[arg(long, value_name = "WHO", value_parser = page_author, requires = "allow_actions")]
    by: Option<Identity>,
}

impl WebArgs {
    /// Returns the author of the page's actions, or `None` if the page is read-only.
    pub(super) fn actions_by(&self) -> Option<Identity> {
        self.allow_actions.then(|| {
            let author = format!("{}{FROM_PAGE}", by(self.by.as_ref()));
            Identity::new(author).expect("names of operators have room for it")
        })
    }

    /// Returns the error for an address that others can reach without a token.
    pub fn contradiction(&self) -> Option<String> {
        let listen = self.listen;
        let open = self.token_file.is_none() && !listen.ip().to_canonical().is_loopback();
        open.then(|| {
            format!(
                "--listen {listen} is not a loopback address: it needs --token-file, with the token that visitors need"
            )
        })
    }
}

/// Parses `--by`, which has to leave room for the addition.
fn page_author(text: &str) -> Result<Identity, String> {
    let author = identity(text)?;
    match Identity::new(format!("{author}{FROM_PAGE}")) {
        Ok(_) => Ok(author),
        Err(error) => Err(format!("with \"{FROM_PAGE}\" {}", expected(error))),
    }
}
