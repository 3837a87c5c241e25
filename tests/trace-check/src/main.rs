//! `trace-check FILE…`: checks traces that were written with `LEASEHOLD_TRACE`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command")]

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use leasehold_trace_check::Checker;

/// Violations that are printed; the first one usually causes the others.
const SHOWN_MAX: usize = 20;

fn main() -> ExitCode {
    let files: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if files.is_empty() {
        eprintln!(
            "usage: trace-check FILE…\n\nChecks traces that were written with LEASEHOLD_TRACE=FILE, all by daemons and jobs of one store.\nExit codes: 0 nothing found, 1 violations, 2 a file cannot be read, 64 usage."
        );
        return ExitCode::from(64);
    }
    let mut checker = Checker::default();
    for file in &files {
        if let Err(error) = read(&mut checker, file) {
            eprintln!("trace-check: {}: {error}", file.display());
            return ExitCode::from(2);
        }
    }
    match checker.finish() {
        Ok(checked) => {
            println!(
                "{} machines, {} turns, {} store calls, {} acquisitions: no violation",
                checked.machines, checked.turns, checked.calls, checked.acquisitions
            );
            ExitCode::SUCCESS
        }
        Err(violations) => {
            for violation in violations.iter().take(SHOWN_MAX) {
                println!("{violation}");
            }
            println!("{} violations", violations.len());
            ExitCode::FAILURE
        }
    }
}

fn read(checker: &mut Checker, file: &Path) -> io::Result<()> {
    checker.read(BufReader::new(File::open(file)?))
}
