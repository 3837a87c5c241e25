//! Checks the trace of daemons or jobs at the end of a test.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use leasehold_trace_check::{Checked, Checker, Violation};

use crate::shared::run_apart;
use crate::{Changes, report_violation};

/// The environment variable that names the file.
pub const VARIABLE: &str = "LEASEHOLD_TRACE";

/// Checks traces together, and compares them with each change in these
/// [recordings](crate::Changes). [`Checked::skipped`] lists comparisons that were not possible.
///
/// # Errors
/// If there are violations. The error lists them.
///
/// # Panics
/// If a file cannot be read.
pub fn check(changes: &[&Path], traces: &[&Path]) -> Result<Checked, Vec<Violation>> {
    let mut checker = Checker::default();
    for file in traces {
        let read = checker.read(open(file));
        read.expect("read a trace");
    }
    for file in changes {
        let read = checker.changes(open(file));
        read.expect("read a recording");
    }
    checker.finish()
}

fn open(file: &Path) -> BufReader<File> {
    let opened = File::open(file);
    BufReader::new(opened.unwrap_or_else(|error| panic!("open {file:?}: {error}")))
}

/// A trace that is checked on drop. If the test has already failed, violations are only printed.
#[derive(Debug)]
pub struct CheckedTrace {
    path: PathBuf,
    changes: Option<Changes>,
}

impl CheckedTrace {
    /// Returns the trace in this file. The file may be missing if its writer failed early.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            changes: None,
        }
    }

    /// Records a collection into this file, and checks each of its changes against the trace. All
    /// processes that write to the collection must write this trace, and must end before the check.
    /// May be called from within a runtime.
    #[must_use]
    pub fn with_changes(
        mut self,
        uri: &str,
        (database, collection): (&str, &str),
        file: impl Into<PathBuf>,
    ) -> Self {
        let file = file.into();
        let changes = run_apart(Changes::record(uri, database, collection, file));
        self.changes = Some(changes);
        self
    }

    /// Returns the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Declares an edit by hand; see [`Changes::declare`].
    pub fn declare(&self, name: &str, why: &str) {
        if let Some(changes) = &self.changes {
            changes.declare(name, why);
        }
    }

    fn check(&self, recordings: &[&Path]) {
        let traces = match self.path.try_exists() {
            Ok(false) => &[][..],
            _ => &[self.path.as_path()],
        };
        if let Err(violations) = check(recordings, traces) {
            report_violation(&format!("in the trace {:?}: {violations:#?}", self.path));
        }
    }
}

impl Drop for CheckedTrace {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Check only the trace. The failed test did not end all writers, so the recording may
            // be incomplete.
            self.check(&[]);
            return;
        }
        let mut changes = self.changes.take();
        if let Some(changes) = &mut changes {
            let drained = run_apart(changes.drain());
            drained.expect("no change is missing");
        }
        let recordings: Vec<_> = changes.iter().map(Changes::path).collect();
        self.check(&recordings);
    }
}
