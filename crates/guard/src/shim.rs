//! The last stage before CMD: a third instance of this binary, which becomes CMD.
//!
//! The shim first records itself in the claim file. A disk that hangs therefore blocks the shim
//! alone, and the guard goes on enforcing the deadline. Until the exec, the shim holds the claim
//! lock too, so that the lock is not free while a record may still be written.
//!
//! The shim sets the attributes that can only be set from inside the process: the parent-death
//! signal and the foreground of the terminal. The standard library's `exec` gives CMD the default
//! disposition of SIGPIPE. CMD inherits the signal mask, which is empty, and the signals that were
//! ignored at the start of the daemon; signal handlers are reset by the exec.

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::io::Errno;
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

use super::claim_share::{Child, ClaimShare};
use super::exec_spec::ExecSpec;
use super::groups::{number, own_group};
use super::progress::CommandEnd;
use super::survivors::ProcessId;
use super::terminal::Terminal;
use super::wire::{ShimStart, post, wait_with};

/// The exit code that shells report if a command was found but cannot be executed.
const NOT_EXECUTABLE: u8 = 126;
/// The exit code that shells report if a command was not found.
const NOT_FOUND: u8 = 127;

/// Returns the exit code for an error of `exec`.
pub(super) fn exit_code(errno: i32) -> u8 {
    let missing = [Errno::NOENT, Errno::NOTDIR].map(Errno::raw_os_error);
    if missing.contains(&errno) {
        NOT_FOUND
    } else {
        NOT_EXECUTABLE
    }
}

/// Returns the number of an error, which is never 0.
pub(super) fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(Errno::IO.raw_os_error())
}

/// Becomes the received command; returns only if that fails, or if the shim is not needed. The
/// guard's socket is this process's standard input. The guard receives the reason, and the process
/// that requested CMD reports it to the user.
pub(super) fn run() -> ExitCode {
    // A copy with close-on-exec, so that the guard notices the exec by the closed socket.
    let Ok(guard) = io::stdin().as_fd().try_clone_to_owned() else {
        return ExitCode::from(NOT_EXECUTABLE);
    };
    // If the guard is gone, no report is possible.
    let Err(NotBecome(Some(end))) = become_command(guard.as_fd()) else {
        return ExitCode::from(NOT_EXECUTABLE);
    };
    // A guard that does not receive this record sees CMD exit with an equivalent code.
    let _ = post(guard.as_fd(), &end);
    ExitCode::from(end.exit_code().unwrap_or(NOT_EXECUTABLE))
}

/// The reason why a shim did not become CMD; `None` if its guard is gone.
struct NotBecome(Option<CommandEnd>);

impl<E: Into<io::Error>> From<E> for NotBecome {
    fn from(error: E) -> Self {
        Self(Some(CommandEnd::NotExecuted(errno(&error.into()))))
    }
}

fn become_command(guard: BorrowedFd<'_>) -> Result<Infallible, NotBecome> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let Some((start, descriptors)) = wait_with::<ShimStart>(guard)? else {
        return Err(NotBecome(None));
    };
    // A guard that exited before the signal was set does not trigger it.
    if getppid().map(number) != Some(start.guard) {
        return Err(NotBecome(None));
    }
    let [Some(stdin), Some(file), lock] = descriptors else {
        return Err(Errno::PROTO.into());
    };
    if lock.is_some() != start.place.is_some() {
        return Err(Errno::PROTO.into());
    }
    // A process that finds the claim lock free while CMD runs must find CMD in the claim file.
    // Closed by the exec; the guard holds the lock after that.
    let claim = lock.zip(start.place);
    let claim = claim.map(|(file, place)| ClaimShare::new(file, place));
    if let Some(claim) = &claim {
        let record = Child::Running(ProcessId::of(number(getpid())));
        let unrecorded = |error| CommandEnd::NotSpawned(errno(&error));
        (claim.write(record)).map_err(|error| NotBecome(Some(unrecorded(error))))?;
    }
    let mut exec_spec = ExecSpec::of_file(file)?;
    exec_spec.accept_sockets(number(getpid()));
    let ExecSpec { words, environment } = exec_spec;
    rustix::stdio::dup2_stdin(stdin)?;
    if start.foreground != 0 {
        take_terminal(start.foreground);
    }
    let Some((program, arguments)) = words.split_first() else {
        return Err(Errno::NOENT.into());
    };
    let mut next = Command::new(program);
    next.args(arguments).envs(environment);
    // Checked here too, because the guard may have been suspended after its decision, and the disk
    // may have hung.
    if leasehold_clock::boot_now() >= start.valid_until {
        return Err(NotBecome(Some(CommandEnd::Refused)));
    }
    Err(next.exec().into())
}

/// Takes the foreground over from the daemon's group, unless a shell has taken it back meanwhile.
fn take_terminal(from: i32) {
    let Some(terminal) = Terminal::of_this_process() else {
        return;
    };
    let holder = terminal.foreground().map(number);
    if holder == Some(from) && own_group() == number(getpid()) {
        terminal.give(getpid());
    }
}
