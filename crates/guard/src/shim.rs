//! The last stage before CMD: this binary once more, which becomes CMD.
//!
//! It sets what can only be set from inside the process: that it dies with its
//! parent, and that it has the terminal. The standard library's `exec` gives
//! CMD the default disposition of SIGPIPE and an empty signal mask; handlers
//! are gone with the exec.

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::io::Errno;
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

use super::errand::Errand;
use super::groups::{number, own_group};
use super::terminal::Terminal;
use super::wire::{ShimFailed, ShimStart, post, wait_with};

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
/// is not needed. The guard's socket is this process's standard input; the guard
/// is told why, and whoever asked for CMD tells people.
pub(super) fn run() -> ExitCode {
    // A copy that is closed by the exec; that is how the guard learns of it.
    let Ok(guard) = io::stdin().as_fd().try_clone_to_owned() else {
        return ExitCode::from(NOT_EXECUTABLE);
    };
    let Err(failure) = become_command(guard.as_fd());
    let (errno, code) = match failure {
        // Nobody is left to tell.
        Failure::NoGuard => return ExitCode::from(NOT_EXECUTABLE),
        Failure::TooLate => (0, NOT_EXECUTABLE),
        Failure::System(error) => {
            let errno = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
            (errno, exit_code(errno))
        }
    };
    // A guard that does not hear it sees CMD end with the same meaning.
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
    if leasehold_clock::boot_now() >= start.valid_until {
        return Err(Failure::TooLate);
    }
    Err(next.exec().into())
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
