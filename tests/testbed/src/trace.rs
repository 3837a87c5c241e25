//! The trace of daemons or jobs, which is checked at the end of the test.

use std::fs::File;
use std::io::{BufReader, ErrorKind};
use std::path::{Path, PathBuf};

use leasehold_trace_check::Checker;

/// The environment variable that names the file.
pub const VARIABLE: &str = "LEASEHOLD_TRACE";

/// A trace that is checked when this value is dropped, unless the test has failed anyway.
#[derive(Debug)]
pub struct CheckedTrace(PathBuf);

impl CheckedTrace {
    /// A trace in this file, which may be missing: its writer may have failed before.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Returns the file.
    pub fn path(&self) -> &Path {
        &self.0
    }

    fn check(&self) {
        let file = match File::open(&self.0) {
            Err(error) if error.kind() == ErrorKind::NotFound => return,
            opened => opened.expect("a trace can be opened"),
        };
        let mut checker = Checker::default();
        let read = checker.read(BufReader::new(file));
        read.expect("a trace can be read");
        if let Err(violations) = checker.finish() {
            panic!("the trace {:?} has violations: {violations:#?}", self.0);
        }
    }
}

impl Drop for CheckedTrace {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.check();
        }
    }
}
