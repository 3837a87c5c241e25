//! The last stage before CMD: a third instance of this binary, which becomes CMD.
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

use super::exec_spec::ExecSpec;
use super::groups::{number, own_group};
use super::terminal::Terminal;
use super::wire::{ShimFailed, ShimStart, post, wait_with};

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

/// Becomes the received command; returns only if that fails, or if the shim is not needed. The
/// guard's socket is this process's standard input. The guard receives the reason, and the process
/// that requested CMD reports it to the user.
pub(super) fn run() -> ExitCode {
    // A copy with close-on-exec, so that the guard notices the exec by the closed socket.
    let Ok(guard) = io::stdin().as_fd().try_clone_to_owned() else {
        return ExitCode::from(NOT_EXECUTABLE);
    };
    let Err(failure) = become_command(guard.as_fd());
    let (errno, code) = match failure {
        // The guard is gone, so no report is possible.
        Failure::NoGuard => return ExitCode::from(NOT_EXECUTABLE),
        Failure::TooLate => (0, NOT_EXECUTABLE),
        Failure::System(error) => {
            let errno = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
            (errno, exit_code(errno))
        }
    };
    // A guard that does not receive this record sees CMD exit with an equivalent code.
    let _ = post(guard.as_fd(), &ShimFailed { errno });
    ExitCode::from(code)
}

enum Failure {
    NoGuard,
    TooLate,
    System(io::Error),
}

impl<E: Into<io::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::System(error.into())
    }
}

fn become_command(guard: BorrowedFd<'_>) -> Result<Infallible, Failure> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let Some((start, descriptors)) = wait_with::<ShimStart>(guard)? else {
        return Err(Failure::NoGuard);
    };
    // A guard that exited before the signal was set does not trigger it.
    if getppid().map(number) != Some(start.guard) {
        return Err(Failure::NoGuard);
    }
    let [Some(stdin), Some(file), None] = descriptors else {
        return Err(Errno::PROTO.into());
    };
    let ExecSpec { words, environment } = ExecSpec::of_file(file)?;
    rustix::stdio::dup2_stdin(stdin)?;
    if start.foreground != 0 {
        take_terminal(start.foreground);
    }
    let Some((program, arguments)) = words.split_first() else {
        return Err(Errno::NOENT.into());
    };
    let mut next = Command::new(program);
    next.args(arguments).envs(environment);
    // Checked here too, because the guard may have been suspended after its decision.
    if leasehold_clock::boot_now() >= start.valid_until {
        return Err(Failure::TooLate);
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
