//! The shim: a third instance of this binary, which becomes CMD.
//!
//! The shim writes its own record to the claim file, so that a hanging disk does not block the
//! guard. The shim holds the claim lock until the exec, so that the lock is not free before the
//! record is written.
//!
//! The shim sets the parent-death signal and the foreground of the terminal, because only the
//! process itself can set them. The standard library's `exec` restores the default disposition of
//! SIGPIPE for CMD. CMD inherits the empty signal mask, and ignores the signals that were ignored
//! when the daemon started.

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::io::{Errno, retry_on_intr};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, getppid, kill_process,
    set_parent_process_death_signal, waitid,
};

use super::claim_share::{Child, ClaimShare};
use super::exec_spec::ExecSpec;
use super::groups::{number, own_group};
use super::progress::CommandEnd;
use super::survivors::ProcessId;
use super::terminal::Terminal;
use super::wire::{ShimStart, pair, post, wait_with};
use super::{EXECUTABLE, SHIM, without_ours};

pub(super) struct Shim {
    pub(super) socket: OwnedFd,
    pub(super) pid: Pid,
}

impl Shim {
    pub(super) fn new() -> io::Result<Self> {
        let (socket, theirs) = pair()?;
        let mut shim = Command::new(EXECUTABLE);
        shim.arg0("leasehold").arg(SHIM).stdin(theirs);
        // The environment of an attached guard may contain variables of leasehold, too.
        without_ours(&mut shim);
        // CMD leads its own process group from its first instruction on.
        let pid = Pid::from_child(&shim.process_group(0).spawn()?);
        Ok(Self { socket, pid })
    }

    pub(super) fn dismiss(self) {
        let _ = kill_process(self.pid, Signal::KILL);
        let _ = retry_on_intr(|| waitid(WaitId::Pid(self.pid), WaitIdOptions::EXITED));
    }
}

/// A shell exits with these codes if a command cannot be executed, or was not found.
pub(super) const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

pub(super) fn exit_code(errno: i32) -> u8 {
    let missing = [Errno::NOENT, Errno::NOTDIR].map(Errno::raw_os_error);
    match missing.contains(&errno) {
        true => NOT_FOUND,
        false => NOT_EXECUTABLE,
    }
}

pub(super) fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(Errno::IO.raw_os_error())
}

/// Becomes the received command, or reports why not. Standard input is the guard's socket.
pub(super) fn run() -> ExitCode {
    // This copy has close-on-exec set, so that the exec closes the socket and the guard notices.
    let Ok(guard) = io::stdin().as_fd().try_clone_to_owned() else {
        return ExitCode::from(NOT_EXECUTABLE);
    };
    // If the guard is gone, no report is possible.
    let Err(NotBecome(Some(end))) = become_command(guard.as_fd()) else {
        return ExitCode::from(NOT_EXECUTABLE);
    };
    // If this record does not arrive, the guard sees only this process's exit code, and takes it
    // for CMD's.
    let _ = post(guard.as_fd(), &end);
    ExitCode::from(end.exit_code().unwrap_or(NOT_EXECUTABLE))
}

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
    // If the guard exited before the parent-death signal was set, the signal is never sent.
    if getppid().map(number) != Some(start.guard) {
        return Err(NotBecome(None));
    }
    let (stdin, file, claim) = match (descriptors, start.place) {
        ([Some(stdin), Some(file), Some(lock)], Some(place)) => {
            (stdin, file, Some(ClaimShare::new(lock, place)))
        }
        ([Some(stdin), Some(file), None], None) => (stdin, file, None),
        _ => return Err(Errno::PROTO.into()),
    };
    // If the claim lock is free while CMD runs, the claim file must name CMD.
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
    // The guard may have been suspended since its decision, or the disk may have hung.
    if leasehold_clock::boot_now() >= start.valid_until {
        return Err(NotBecome(Some(CommandEnd::Refused)));
    }
    Err(next.exec().into())
}

/// Takes the foreground from the daemon's group, unless a shell has already taken it back.
fn take_terminal(from: i32) {
    let Some(terminal) = Terminal::of_this_process() else {
        return;
    };
    let holder = terminal.foreground().map(number);
    if holder == Some(from) && own_group() == number(getpid()) {
        terminal.give(getpid());
    }
}
