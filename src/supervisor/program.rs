//! Commands with what they are told of the lease: the workload, its hooks, and
//! the command that asks for its health.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::clock;
use crate::election::{Identity, LeaseName, Token};
use crate::workload::{Command, Ended, Terms, Workload};

/// What every command is told, but for the token.
#[derive(Debug, Clone)]
pub struct Program {
    /// LEASEHOLD_LEASE.
    pub lease: LeaseName,
    /// LEASEHOLD_IDENTITY.
    pub identity: Identity,
    /// LEASEHOLD_STATUS_FILE.
    pub status_file: PathBuf,
}

impl Program {
    /// `words` with the environment of a workload; `None` without a word.
    /// Without a token the variable is empty: this replica does not lead.
    pub(super) fn command(&self, words: &[OsString], token: Option<Token>) -> Option<Command> {
        let (program, arguments) = words.split_first()?;
        let (name, value) = Self::token(token);
        let command = Command::new(program)
            .arguments(arguments)
            .env("LEASEHOLD_LEASE", self.lease.as_str())
            .env(name, value)
            .env("LEASEHOLD_IDENTITY", self.identity.as_str())
            .env("LEASEHOLD_STATUS_FILE", &self.status_file);
        Some(command)
    }

    /// The variable that is known only with authority.
    pub(super) fn token(token: Option<Token>) -> (OsString, OsString) {
        let token = token.map_or_else(String::new, |token| token.to_string());
        ("LEASEHOLD_TOKEN".into(), token.into())
    }

    /// Runs a short command to its end: whether it succeeded, or why not.
    pub(super) async fn run_briefly(
        &self,
        words: &[OsString],
        token: Option<Token>,
        timeout: Duration,
    ) -> Result<(), String> {
        let Some(command) = self.command(words, token) else {
            return Ok(());
        };
        let at = clock::boot_now() + timeout;
        let terms = Terms {
            valid_until: at,
            kill_at: at,
        };
        match Workload::start(&command.quiet(), terms, None) {
            Ok(mut started) => success(started.ended().await),
            Err(error) => Err(format!("it cannot be started: {}", error.kind())),
        }
    }
}

/// Whether a short command succeeded, or why not.
pub(super) fn success(ended: Ended) -> Result<(), String> {
    match ended.end.exit_code() {
        Some(0) => Ok(()),
        Some(_) if ended.by_us => Err("it did not end in time and was killed".to_owned()),
        Some(code) => Err(format!("it exited {code}")),
        None => Err("it could not be run".to_owned()),
    }
}
