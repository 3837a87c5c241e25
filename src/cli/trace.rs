//! The trace that the environment variable LEASEHOLD_TRACE asks for.

use std::io;
use std::path::PathBuf;

use crate::trace::Trace;

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
