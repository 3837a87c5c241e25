//! The trace that the environment variable LEASEHOLD_TRACE enables.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

use leasehold_clock as clock;
use leasehold_core::election::BootTime;
use leasehold_guard::claim_share::ClaimPlace;
use leasehold_guard::{Action, PolicyInput, PolicyObserver, Watched};
use leasehold_host::{CommandError, exit};
use leasehold_mongodb::trace::{GuardOptions, Guarded, Kind, MachineTrace, Trace};

const VARIABLE: &str = "LEASEHOLD_TRACE";

/// Opens the trace, if the variable is set.
pub fn from_environment() -> Result<Option<Trace>, CommandError> {
    let path = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
    let Some(path) = path.map(PathBuf::from) else {
        return Ok(None);
    };
    match open(&path) {
        Ok(file) => Ok(Some(Trace::new(file))),
        Err(error) => Err(CommandError::new(
            exit::CONFIGURATION,
            format!("{VARIABLE}: cannot open {path:?}"),
        )
        .because(error.to_string())
        .to_fix("name a file in a directory that this user can write to, or unset the variable")),
    }
}

/// Opens a file, or creates a file that only this user can read. Refuses a symbolic link, because
/// another user may have planted it. Refuses a pipe, because each write would block until a process
/// reads it.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
        .map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::LOOP) => io::Error::other("it is a symbolic link"),
            Some(_) | None => error,
        })?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

struct GuardTrace(MachineTrace);

impl PolicyObserver for GuardTrace {
    fn handled(&mut self, now: BootTime, input: PolicyInput, action: Option<Action>) {
        self.0.turn(now, &input, action.as_slice());
    }
}

/// Opens a guard's trace, if the variable is set. The daemon reports a file that cannot be opened.
pub fn of_guard(watched: &Watched) -> Option<Box<dyn PolicyObserver>> {
    let trace = from_environment().ok()??;
    let options = GuardOptions {
        policy: watched.policy,
        daemon: watched.daemon,
        guarded: match watched.place {
            Some(ClaimPlace::Command) => Guarded::Command,
            Some(ClaimPlace::OnLead) => Guarded::OnLead,
            Some(ClaimPlace::OnStepDown) => Guarded::OnStepDown,
            None => Guarded::Other,
        },
    };
    let mut trace = MachineTrace::new(Some(trace));
    trace.started((Kind::Guard, String::new()), clock::boot_now(), &options);
    Some(Box::new(GuardTrace(trace)))
}
