//! The trace that the environment variable LEASEHOLD_TRACE asks for.

use std::io;
use std::path::PathBuf;

use crate::clock;
use crate::election::BootTime;
use crate::trace::{GuardOptions, Guarded, Kind, MachineTrace, Trace};
use crate::workload::claim_share::Place;
use crate::workload::{Action, Input, Observer, Watched};

const VARIABLE: &str = "LEASEHOLD_TRACE";

/// The file of the trace is not usable.
#[derive(Debug, thiserror::Error)]
#[error(
    "{VARIABLE}: cannot open {path:?}: {source}\n  name a file in a directory that this user can \
     write to, or unset the variable"
)]
pub struct TraceError {
    path: PathBuf,
    source: io::Error,
}

/// Opens the trace, if one is asked for.
///
/// # Errors
/// [`TraceError`] if the file cannot be opened.
pub(super) fn from_environment() -> Result<Option<Trace>, TraceError> {
    let path = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
    let open = |path: PathBuf| Trace::open(&path).map_err(|source| TraceError { path, source });
    path.map(PathBuf::from).map(open).transpose()
}

/// The trace of a guard.
struct GuardTrace(MachineTrace);

impl Observer for GuardTrace {
    fn handled(&mut self, now: BootTime, input: Input, action: Option<Action>) {
        self.0.turn(now, &input, action.as_slice());
    }
}

/// Opens the trace of a guard, if one is asked for. Its daemon has reported a file that cannot be
/// opened.
pub fn of_guard(watched: &Watched) -> Option<Box<dyn Observer>> {
    let trace = from_environment().ok()??;
    let Watched {
        terms,
        stop_signal,
        linger,
        place,
        daemon,
    } = *watched;
    let guarded = match place {
        Some(Place::Command) => Guarded::Command,
        Some(Place::OnLead) => Guarded::OnLead,
        Some(Place::OnStepDown) => Guarded::OnStepDown,
        None => Guarded::Other,
    };
    let options = GuardOptions {
        terms,
        stop_signal,
        linger,
        daemon,
        guarded,
    };
    let started = MachineTrace::started(trace, Kind::Guard, clock::boot_now(), &options);
    Some(Box::new(GuardTrace(started)))
}
