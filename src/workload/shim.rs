//! The last stage before CMD: this binary once more, which becomes CMD.
//!
//! It sets what can only be set from inside the process: that it dies with its
//! parent, and that it has the terminal. The standard library's `exec` gives
//! CMD the default disposition of SIGPIPE and an empty signal mask; handlers
//! are gone with the exec.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::io::Errno;
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

use super::groups::{number, own_group};
use super::terminal::Terminal;
use super::wire::{ShimFailed, ShimStart, post, take_with};
use crate::clock;

/// The command was found and cannot be executed, as shells have it.
const NOT_EXECUTABLE: u8 = 126;
/// The command was not found, as shells have it.
const NOT_FOUND: u8 = 127;

/// The exit code for an error of `exec`.
pub(super) fn exit_code(errno: i32) -> u8 {
    let missing = [Errno::NOENT, Errno::NOTDIR].map(Errno::raw_os_error);
    if missing.contains(&errno) {
        NOT_FOUND
    } else {
        NOT_EXECUTABLE
    }
}

/// Becomes `command`; returns only if that fails. The guard's socket is this
/// process's standard input.
pub(super) fn run(command: &[OsString]) -> ExitCode {
    match become_command(command) {
        // Nobody is left to tell, or the guard knows.
        Err(Failure::NoGuard | Failure::TooLate) => ExitCode::from(NOT_EXECUTABLE),
        Err(Failure::System(error)) => {
            say(command, &error);
            ExitCode::from(exit_code(error.raw_os_error().unwrap_or(0)))
        }
    }
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

fn become_command(command: &[OsString]) -> Result<std::convert::Infallible, Failure> {
    // A copy that is closed by the exec; that is how the guard learns of it.
    let guard = io::stdin().as_fd().try_clone_to_owned()?;
    let (start, [stdin, _]) = take_with::<ShimStart>(guard.as_fd())?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // A guard that died before that sends no signal any more.
    if getppid().map(number) != Some(start.guard) {
        return Err(Failure::NoGuard);
    }
    if let Some(stdin) = stdin {
        rustix::stdio::dup2_stdin(stdin)?;
    }
    if start.foreground != 0 {
        take_terminal(start.foreground);
    }
    let Some((program, arguments)) = command.split_first() else {
        return Err(Failure::System(Errno::NOENT.into()));
    };
    let mut next = Command::new(program);
    next.args(arguments);
    // Looked at here too: the guard may have slept after it had judged.
    if clock::boot_now() >= start.valid_until {
        fail(guard.as_fd(), 0);
        return Err(Failure::TooLate);
    }
    let error = next.exec();
    fail(
        guard.as_fd(),
        error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()),
    );
    Err(Failure::System(error))
}

/// Takes the foreground over from the daemon's group, unless a shell has taken
/// it back meanwhile.
fn take_terminal(from: i32) {
    let Some(terminal) = Terminal::of_this_process() else {
        return;
    };
    let holder = terminal.foreground().map(number);
    if holder == Some(from) && own_group() == number(getpid()) {
        terminal.give(getpid());
    }
}

fn fail(guard: BorrowedFd<'_>, errno: i32) {
    // A guard that does not hear it sees CMD end with the same meaning.
    let _ = post(guard, &ShimFailed { errno });
}

fn say(command: &[OsString], error: &io::Error) {
    let name = command
        .first()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let text = format!("leasehold: execute {name}: {error}\n");
    let _ = io::stderr().lock().write_all(text.as_bytes());
}
