//! `leasehold guard`: runs the workload in its own container, as ordered by the daemon in another
//! container of the pod.

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueHint};
use tracing::level_filters::LevelFilter;
use tracing::{error, info, warn};

use super::CommandError;
use crate::{exit, log};
use leasehold_guard::CommandEnd;
use leasehold_guard::attached::{
    AttachError, AttachedCommand, AttachedEnd, AttachedEvent, AttachedGuard,
};
use leasehold_guard::prerequisites::prerequisites;
use leasehold_host::cause::not_executable;
use leasehold_host::program::check_executable;

const HELP: &str = "\
The guard needs no connection string and no token. It must be process 1 of its container; the containers share the \
volume of the socket. CMD gets the variables LEASEHOLD_LEASE, LEASEHOLD_TOKEN and others: docs/supervision.md.

Examples:
  leasehold run --lease orders --workload-socket /run/leasehold/guard.sock
                             in leasehold's container
  leasehold guard --socket /run/leasehold/guard.sock -- /orders --serve
                             in the workload's container

Signals: TERM sends workload.stop_signal to CMD; INT and QUIT are sent unchanged. SIGKILL follows after workload.stop_grace. HUP, USR1, USR2 and WINCH are \
passed to CMD.

Exit codes: 0 stopped by a signal, 1 a system error, 64 usage, 71 the system lacks a feature that CMD needs, 78 not \
process 1 of a container. If CMD ends by itself: its own code, 76 if CMD exited with 0 but left processes that were \
stopped, 126/127 CMD cannot be executed / found, 128+N CMD was ended by signal N.";

/// Arguments of `leasehold guard`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct GuardArgs {
    /// Socket of the daemon (its key workload.socket)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    socket: PathBuf,
    /// Command to run while the daemon leads
    #[arg(value_name = "CMD", last = true, required = true)]
    command: Vec<OsString>,
}

impl GuardArgs {
    /// Returns the arguments if the command line has the form used in the example of [`HELP`] or in
    /// the chart. Without clap, a guard uses 14 % less memory.
    pub(super) fn without_clap(arguments: &[OsString]) -> Option<Self> {
        let [_, name, rest @ ..] = arguments else {
            return None;
        };
        let (socket, rest) = match rest {
            [flag, socket, rest @ ..] if flag == "--socket" => (socket.as_bytes(), rest),
            [flag, rest @ ..] => (flag.as_bytes().strip_prefix(b"--socket=")?, rest),
            [] => return None,
        };
        let [dashes, command @ ..] = rest else {
            return None;
        };
        let is_value = !socket.is_empty() && !socket.starts_with(b"-");
        let in_form = name == "guard" && is_value && dashes == "--" && !command.is_empty();
        in_form.then(|| Self {
            socket: OsStr::from_bytes(socket).into(),
            command: command.to_vec(),
        })
    }
}

/// Runs the command whenever the daemon orders it, until the command exits by itself or the
/// container is asked to stop.
pub fn run(args: GuardArgs) -> Result<ExitCode, CommandError> {
    let guard = AttachedGuard::new().map_err(failed)?;
    log::start(
        LevelFilter::INFO,
        log::LineFormat::of(log::is_json_by_default()),
    );
    let program = args.command.first().cloned().unwrap_or_default();
    prerequisites()?;
    check_executable(&program)?;
    let absolute = std::path::absolute(&args.socket);
    let socket = absolute.map_err(CommandError::failed(exit::NEGATIVE, "find the socket"))?;
    let (name, said) = (socket.display().to_string(), Cell::new(false));
    let report = |event: AttachedEvent<'_>| match event {
        AttachedEvent::Waits(why) => {
            said.set(false);
            warn!(
                socket = name,
                "waiting for leasehold: {}",
                cause(&socket, why)
            );
        }
        AttachedEvent::Connected if said.replace(true) => {}
        AttachedEvent::Connected => info!("connected to leasehold; waiting until it leads"),
        AttachedEvent::Refused => {
            warn!(
                socket = name,
                "leasehold closed the connection three times without an order; check leasehold's log"
            );
        }
        AttachedEvent::Starts => info!("leasehold leads; starting the workload"),
        AttachedEvent::Gone => info!("workload stopped; waiting until leasehold leads again"),
    };
    let command = AttachedCommand {
        socket: socket.clone(),
        words: args.command,
    };
    let AttachedEnd::Exited {
        end,
        leftovers_stopped,
    } = guard.run(&command, report).map_err(failed)?
    else {
        info!("stopped, because the container was asked to stop");
        return Ok(ExitCode::from(exit::DONE));
    };
    if let Some(error) = end.not_executed() {
        let why = not_executable(&program, &error);
        let what = format!("cannot execute {}", program.display());
        let code = end.exit_code().unwrap_or(exit::CANNOT_EXECUTE);
        return Err(CommandError::new(code, what).because(why));
    }
    let code = end.exit_code().unwrap_or(exit::NEGATIVE);
    if leftovers_stopped && end == CommandEnd::Exited(exit::DONE) {
        error!("the workload exited with 0, but processes that it left behind were stopped");
        return Ok(ExitCode::from(exit::INCOMPLETE));
    }
    warn!(code, "workload exited by itself");
    Ok(ExitCode::from(code))
}

fn failed(error: AttachError) -> CommandError {
    match error {
        AttachError::NotProcess1 => CommandError::new(exit::CONFIGURATION, error.to_string())
            .to_fix(
                "start leasehold guard directly, without a wrapper such as tini or sh, and without \
                 shareProcessNamespace or hostPID; or run the command with leasehold run -- CMD",
            ),
        AttachError::Io(error) => CommandError::failed(exit::NEGATIVE, "guard the workload")(error),
    }
}

/// Returns why no daemon answers on the socket, with the remedy.
fn cause(socket: &Path, error: &io::Error) -> String {
    let found = std::fs::metadata(socket).map(|found| found.file_type().is_socket());
    let remedy = match (found, error.kind()) {
        (Ok(false), _) => "the file is not a socket; to fix: pass the path in workload.socket",
        (Ok(true), io::ErrorKind::ConnectionRefused) => "no leasehold listens on the socket yet",
        (_, io::ErrorKind::PermissionDenied) => {
            "permission denied; to fix: give this user access to the directory of the socket"
        }
        (_, io::ErrorKind::NotFound) => {
            "no such file; to fix: mount the volume of workload.socket here, and start leasehold"
        }
        _ => return error.to_string(),
    };
    remedy.to_owned()
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches};

    use super::*;

    #[test]
    fn command_lines_are_parsed_alike_with_and_without_clap() {
        let mut parsed = 0;
        for line in [
            "guard --socket /s -- sleep --socket 3",
            "guard --socket s -- -- x",
            "guard --socket /s -- a",
            "guard --socket /s -- a --",
            "guard --socket /s --",
            "guard --socket -- a b",
            "guard --socket -s -- a",
            "guard --socket=/s -- a",
            "guard --socket= -- a",
            "guard --socket=-s -- a",
            "guard --socket /s a -- b",
            "guard --help -- a",
            "run --socket /s -- a",
            "guard --socket  -- a",
        ] {
            let words = ["leasehold"].into_iter().chain(line.split(' '));
            let line: Vec<_> = words.map(OsString::from).collect();
            let Some(guard) = GuardArgs::without_clap(&line) else {
                continue;
            };
            parsed += 1;
            let clap = GuardArgs::augment_args(Command::new("guard"));
            let mut matches = clap.try_get_matches_from(&line[1..]).expect("valid");
            let by_clap = GuardArgs::from_arg_matches_mut(&mut matches).expect("as declared");
            assert_eq!(format!("{guard:?}"), format!("{by_clap:?}"));
        }
        assert_eq!(parsed, 5);
    }
}
