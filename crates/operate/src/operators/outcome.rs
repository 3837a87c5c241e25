//! The answer of a command that writes to a lease, as text and as JSON.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use super::Session;
use leasehold_cli::answer;
use leasehold_core::election::ResourceName;
use leasehold_host::CommandError;
use leasehold_host::exit;
use leasehold_host::signals::Exit;

/// The result of a command, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RequestResult {
    Done,
    /// Nothing was to be done.
    Already,
    /// Written, and not awaited.
    Requested,
    Refused,
    /// The lease was deleted meanwhile.
    Deleted,
    /// Another operator or candidate came first.
    Superseded,
    /// Written, but without an effect yet.
    UnderWay,
}

/// The answer of a command that writes to a lease.
pub(super) struct CommandOutcome {
    pub(super) result: RequestResult,
    pub(super) message: String,
    pub(super) took: Option<Duration>,
    /// The leader that the request has led to.
    pub(super) leader: Option<Leader>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Leader {
    pub(super) identity: String,
    pub(super) token: i64,
}

impl CommandOutcome {
    /// An answer without a write, or before its effect.
    pub(super) fn new(result: RequestResult, message: impl Into<String>) -> Self {
        Self {
            result,
            message: message.into(),
            took: None,
            leader: None,
        }
    }

    /// Adds the time since the write was sent.
    pub(super) fn after(self, took: Duration) -> Self {
        Self {
            took: Some(took),
            ..self
        }
    }

    pub(super) fn code(&self) -> u8 {
        match self.result {
            RequestResult::Done | RequestResult::Already | RequestResult::Requested => exit::DONE,
            RequestResult::Refused | RequestResult::Deleted | RequestResult::Superseded => {
                exit::NEGATIVE
            }
            RequestResult::UnderWay => exit::UNDER_WAY,
        }
    }

    pub(super) fn object(&self, name: &ResourceName, action: &str) -> Value {
        json!({
            "lease": name.as_str(),
            "action": action,
            "result": self.result,
            "message": self.message,
            "leader": self.leader,
            "took_ms": self.took.map(|took| took.as_secs_f64() * 1e3),
        })
    }

    /// Prints the answer; returns the exit code.
    pub(super) fn print(
        &self,
        session: &Session,
        name: &ResourceName,
        action: &str,
    ) -> Result<Exit, CommandError> {
        let text = match session.json {
            true => format!("{}\n", self.object(name, action)),
            false => format!("lease {name}: {}\n", self.message),
        };
        answer(text.as_bytes())?;
        Ok(self.code().into())
    }
}
