//! The state of a supervised command, for health checks.

use tokio::sync::watch;

use leasehold_core::election::Token;

/// State of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandRun {
    /// No command is running.
    None,
    /// The command runs under the claim with this token.
    Running(Token),
    /// The command was asked to stop, or has exited while its descendants remain.
    Stopping,
}

/// The sender of the state.
pub(super) struct CommandRuns(watch::Sender<CommandRun>);

impl Default for CommandRuns {
    fn default() -> Self {
        Self(watch::channel(CommandRun::None).0)
    }
}

impl CommandRuns {
    pub(super) fn subscribe(&self) -> watch::Receiver<CommandRun> {
        self.0.subscribe()
    }

    pub(super) fn set(&self, token: Option<Token>) {
        let run = token.map_or(CommandRun::None, CommandRun::Running);
        self.0.send_replace(run);
    }

    pub(super) fn stops(&self) {
        self.0.send_if_modified(|run| {
            let runs = matches!(run, CommandRun::Running(_));
            if runs {
                *run = CommandRun::Stopping;
            }
            runs
        });
    }
}
