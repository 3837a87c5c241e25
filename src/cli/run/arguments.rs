use std::ffi::OsString;

use clap::Args;

use leasehold_cli::keys::{AllKeys, Configuration, given, useless_without_command, with_layers};

/// Keys without effect in a `leasehold run` without a command, which rejects them as flags. In a
/// file they are accepted, because a daemon with a command may share the file.
const OF_A_COMMAND: [&str; 5] = [
    "workload.stop_signal",
    "workload.stop_scope",
    "workload.stop_grace",
    "workload.linger",
    "workload.on_exit",
];

/// Keys without effect in a `leasehold run` with a command, because the daemon waits until the
/// command has ended. Treated like [`OF_A_COMMAND`].
const OF_NO_COMMAND: [&str; 2] = ["lease.handoff_delay", "workload.ends_first"];

const HELP: &str = "\
Examples:
  leasehold run --lease orders --mongodb-uri-file /etc/leasehold/uri
  LEASEHOLD_MONGODB__URI=mongodb://localhost leasehold run --lease orders --http-listen ''
  leasehold run --config /etc/leasehold.toml --config site.yaml --log-level debug
  leasehold run --lease orders --workload-stop-grace 2m -- ./scheduler --verbose

Signals: TERM, INT and QUIT step down, release the lease and exit 0; a second one 1s or more after the first exits at \
once, without a release. HUP reads the configuration again, USR1 steps down, USR2 logs the status.";

/// Arguments of `leasehold run`.
#[derive(Debug, Args)]
#[command(after_help = with_layers(HELP))]
pub struct RunArgs {
    #[command(flatten)]
    pub(in crate::cli) configuration: Configuration<AllKeys>,
    /// Command to run while this replica leads
    #[arg(value_name = "CMD", last = true)]
    pub(in crate::cli) command: Vec<OsString>,
}

impl RunArgs {
    /// Returns the error for a flag without effect, if there is one.
    pub(in crate::cli) fn contradiction(&self) -> Option<String> {
        if self.command.is_empty() {
            return useless_without_command(&OF_A_COMMAND, &self.configuration.sources);
        }
        let flag = given(&OF_NO_COMMAND, &self.configuration.sources)?;
        Some(format!(
            "--{flag} applies to a workload that leasehold does not run: leave it out, since the end of the command after -- is awaited"
        ))
    }
}
