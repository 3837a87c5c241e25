//! Builds the commands that get the lease in their environment: workload, hooks, health command.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use leasehold_clock as clock;
use leasehold_core::election::{Identity, ResourceName, Token};
use leasehold_guard::{Command, CommandProgress, GuardedCommand, Termination, Terms};
use leasehold_host::cause::not_executed;

/// Time within which a killed command exits, unless it is blocked in the kernel.
pub(super) const KILLED_WITHIN: Duration = Duration::from_secs(1);

/// Environment of every command, apart from the token.
#[derive(Debug, Clone)]
pub struct Program {
    /// The lease, passed to each command as LEASEHOLD_LEASE.
    pub lease: ResourceName,
    /// This candidate's name, passed to each command as LEASEHOLD_IDENTITY.
    pub identity: Identity,
    /// The JSON status file. Its path is passed to each command as LEASEHOLD_STATUS_FILE.
    pub status_file: PathBuf,
}

impl Program {
    /// Builds a command; `None` if `words` is empty. The token is empty while this replica does not
    /// lead.
    pub(super) fn command(&self, words: &[OsString], token: Option<Token>) -> Option<Command> {
        let (program, arguments) = words.split_first()?;
        Some(self.environment(Command::new(program).arguments(arguments), token))
    }

    pub(super) fn environment(&self, command: Command, token: Option<Token>) -> Command {
        let command = command
            .env("LEASEHOLD_LEASE", self.lease.as_str())
            .env("LEASEHOLD_IDENTITY", self.identity.as_str())
            .env("LEASEHOLD_STATUS_FILE", &self.status_file);
        let variables = Self::of_token(token).into_iter();
        variables.fold(command, |command, (name, value)| command.env(name, value))
    }

    /// Returns the token in two variables, because a lock inside the workload overwrites the first.
    pub(super) fn of_token(token: Option<Token>) -> [(OsString, OsString); 2] {
        let token = OsString::from(token.map_or_else(String::new, |token| token.to_string()));
        [
            ("LEASEHOLD_TOKEN".into(), token.clone()),
            ("LEASEHOLD_LEASE_TOKEN".into(), token),
        ]
    }

    /// Runs a short command; the error says why it failed. A command that survives SIGKILL is kept
    /// in `left`.
    pub(super) async fn run_briefly(
        &self,
        words: &[OsString],
        token: Option<Token>,
        timeout: Duration,
        left: &mut LeftoverProcess,
    ) -> Result<(), String> {
        let Some(command) = self.command(words, token) else {
            return Ok(());
        };
        if left.remains() {
            return Err("an earlier run survived SIGKILL".to_owned());
        }
        let terms = Terms::without_grace(clock::boot_now() + timeout);
        match GuardedCommand::start(&command.quiet(), terms, None) {
            Ok(started) => match left.outlast(started, timeout).await {
                Some(ended) => success(ended),
                None => Err("it timed out and survived SIGKILL".to_owned()),
            },
            Err(error) => Err(format!("it cannot be started: {}", error.kind())),
        }
    }
}

pub(super) fn success(ended: Termination) -> Result<(), String> {
    if let Some(error) = ended.end.not_executed() {
        return Err(format!("it cannot be executed: {}", not_executed(&error)));
    }
    match ended.end.exit_code() {
        Some(0) => Ok(()),
        Some(_) if ended.by_us => Err("it timed out and was killed".to_owned()),
        Some(code) => Err(format!("it exited {code}")),
        None => Err("it could not be run".to_owned()),
    }
}

#[derive(Debug, Default)]
pub(super) struct LeftoverProcess(Option<GuardedCommand>);

impl LeftoverProcess {
    pub(super) fn remains(&mut self) -> bool {
        let gone = |left: &mut GuardedCommand| matches!(left.progress(), CommandProgress::Gone(_));
        self.0.take_if(gone);
        self.0.is_some()
    }

    /// Waits for the command. A command that survives SIGKILL is kept, and blocks further runs.
    pub(super) async fn outlast(
        &mut self,
        mut started: GuardedCommand,
        limit: Duration,
    ) -> Option<Termination> {
        let ended = tokio::time::timeout(limit + KILLED_WITHIN, started.ended()).await;
        if ended.is_err() {
            self.0 = Some(started);
        }
        ended.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_guard::CommandEnd;

    const ENDED: Termination = Termination {
        end: CommandEnd::Signalled(9),
        by_us: true,
        interrupted: false,
        lingered: false,
        guard_lost: false,
    };

    fn program() -> Program {
        Program {
            lease: ResourceName::new("orders").expect("legal"),
            identity: Identity::new("a").expect("legal"),
            status_file: PathBuf::from("/nowhere/status.json"),
        }
    }

    #[tokio::test]
    async fn an_unkillable_process_blocks_the_next_start() {
        let (hangs, progress) = GuardedCommand::stand_in();
        let mut left = LeftoverProcess::default();
        assert_eq!(left.outlast(hangs, Duration::from_millis(10)).await, None);
        assert!(left.remains());
        let words = ["/bin/true".into()];
        let second = Duration::from_secs(1);
        let ran = program().run_briefly(&words, None, second, &mut left).await;
        assert!(ran.is_err_and(|why| why.contains("survived SIGKILL")));
        progress.send_replace(CommandProgress::Gone(ENDED));
        assert!(!left.remains());
    }

    #[tokio::test]
    async fn the_end_of_a_process_is_reported_immediately() {
        let (ends, progress) = GuardedCommand::stand_in();
        progress.send_replace(CommandProgress::Gone(ENDED));
        let mut left = LeftoverProcess::default();
        let hour = Duration::from_secs(3600);
        assert_eq!(left.outlast(ends, hour).await, Some(ENDED));
        assert!(!left.remains());
    }
}
