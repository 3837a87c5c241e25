//! The last stage before CMD: this binary once more, which becomes CMD.
//!
//! It sets what can only be set from inside the process: that it dies with its
//! parent, and that it has the terminal. The standard library's `exec` gives
//! CMD the default disposition of SIGPIPE and an empty signal mask; handlers
//! are gone with the exec.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::io::Errno;
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

use super::errand::Errand;
use super::groups::{number, own_group};
use super::terminal::Terminal;
use super::wire::{ShimFailed, ShimStart, post, wait_with};
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

/// Becomes the command that it is told of; returns only if that fails, or if it
/// is not needed. The guard's socket is this process's standard input.
pub(super) fn run() -> ExitCode {
    match become_command() {
        // Nobody is left to tell, or the guard knows.
        Err(Failure::NoGuard | Failure::TooLate) => ExitCode::from(NOT_EXECUTABLE),
        Err(Failure::System(word, error)) => {
            say(&word, &error);
            ExitCode::from(exit_code(error.raw_os_error().unwrap_or(0)))
        }
    }
}

enum Failure {
    NoGuard,
    TooLate,
    /// While this was to be executed.
    System(OsString, io::Error),
}

impl<E: Into<io::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::System(OsString::new(), error.into())
    }
}

fn become_command() -> Result<std::convert::Infallible, Failure> {
    // A copy that is closed by the exec; that is how the guard learns of it.
    let guard = io::stdin().as_fd().try_clone_to_owned()?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let Some((start, descriptors)) = wait_with::<ShimStart>(guard.as_fd())? else {
        return Err(Failure::NoGuard);
    };
    // A guard that died before the signal was set sends none.
    if getppid().map(number) != Some(start.guard) {
        return Err(Failure::NoGuard);
    }
    let [Some(stdin), Some(file)] = descriptors else {
        return Err(Errno::PROTO.into());
    };
    let Errand { words, environment } = Errand::of_file(file)?;
    rustix::stdio::dup2_stdin(stdin)?;
    if start.foreground != 0 {
        take_terminal(start.foreground);
    }
    let Some((program, arguments)) = words.split_first() else {
        return Err(Errno::NOENT.into());
    };
    let mut next = Command::new(program);
    next.args(arguments).envs(environment);
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
    Err(Failure::System(program.clone(), error))
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

fn say(word: &OsStr, error: &io::Error) {
    let text = format!("leasehold: execute {}: {error}\n", word.to_string_lossy());
    let _ = io::stderr().lock().write_all(text.as_bytes());
}
