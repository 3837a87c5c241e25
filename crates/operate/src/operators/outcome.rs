//! The answer of a command that writes to a lease, as text and as JSON.

use std::time::Duration;

use serde_json::{Value, json};

use super::Session;
use leasehold_cli::answer;
use leasehold_core::election::{ResourceName, Token};
use leasehold_host::CommandError;

/// The answer of a command that writes to a lease.
pub(super) struct CommandOutcome {
    /// The result in one word, for JSON.
    pub(super) result: &'static str,
    pub(super) message: String,
    pub(super) code: u8,
    pub(super) took: Option<Duration>,
    /// The leader that the request has led to.
    pub(super) leader: Option<Leader>,
}

/// A leader and its token.
#[derive(Debug, Clone)]
pub(super) struct Leader {
    pub(super) identity: String,
    pub(super) token: Token,
}

impl CommandOutcome {
    /// An answer without a write, or before its effect.
    pub(super) fn plain(result: &'static str, code: u8, message: String) -> Self {
        Self {
            result,
            message,
            code,
            took: None,
            leader: None,
        }
    }

    /// Returns the answer as JSON.
    pub(super) fn object(&self, name: &ResourceName, action: &str) -> Value {
        let leader = self
            .leader
            .as_ref()
            .map(|leader| json!({ "identity": leader.identity, "token": leader.token.get() }));
        json!({
            "lease": name.as_str(),
            "action": action,
            "result": self.result,
            "message": self.message,
            "leader": leader,
            "took_ms": self.took.map(|took| took.as_secs_f64() * 1e3),
        })
    }

    /// Prints the answer; returns the exit code.
    pub(super) fn print(
        &self,
        session: &Session,
        name: &ResourceName,
        action: &str,
    ) -> Result<u8, CommandError> {
        let text = match session.json {
            true => format!("{}\n", self.object(name, action)),
            false => format!("lease {name}: {}\n", self.message),
        };
        answer(text.as_bytes())?;
        Ok(self.code)
    }
}
