//! `trace-check [--changes FILE]… TRACE…`: checks traces that were written with `LEASEHOLD_TRACE`,
//! and recordings of their documents' changes.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command")]

use std::ffi::OsString;
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::ExitCode;

use leasehold_trace_check::{Checked, Checker, Transitions};

/// Maximum number of violations to print. The first violation usually causes the others.
const SHOWN_MAX: usize = 20;

const USAGE: &str = "usage: trace-check [--some-untraced] [--changes FILE]… TRACE…

Checks traces that were written with LEASEHOLD_TRACE=FILE, all by daemons and jobs of one store.
--some-untraced: a version took part that writes no traces, and may have proof of exits.
--changes FILE: a recording of the changes of a collection; each must be explained by the traces.
Exit codes: 0 nothing found, 1 violations, 2 a file cannot be read, 64 usage.";

enum Input {
    /// The flag `--some-untraced`: a version that writes no traces took part.
    SomeUntraced,
    Trace(PathBuf),
    Changes(PathBuf),
}

/// Parses the arguments. Returns `None` if the arguments are invalid.
fn inputs(mut arguments: impl Iterator<Item = OsString>) -> Option<Vec<Input>> {
    let mut inputs = Vec::new();
    while let Some(argument) = arguments.next() {
        inputs.push(match argument.to_str() {
            Some("--some-untraced") => Input::SomeUntraced,
            Some("--changes") => Input::Changes(arguments.next()?.into()),
            Some(option) if option.starts_with('-') => return None,
            _ => Input::Trace(argument.into()),
        });
    }
    (!inputs.is_empty()).then_some(inputs)
}

fn main() -> ExitCode {
    let Some(inputs) = inputs(std::env::args_os().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(64);
    };
    let mut checker = Checker::default();
    for input in &inputs {
        if let Err(error) = read(&mut checker, input) {
            eprintln!("trace-check: {error}");
            return ExitCode::from(2);
        }
    }
    match checker.finish() {
        Ok(checked) => {
            report(&checked);
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

fn report(checked: &Checked) {
    for skipped in &checked.skipped {
        println!("skipped: {skipped}");
    }
    let Transitions {
        all,
        calls,
        unknown,
        operators,
        edits,
        unused,
    } = checked.transitions;
    if all > 0 {
        println!(
            "{all} changes: {calls} by calls ({unknown} of unknown outcome), {operators} by operators, {edits} declared \
             ({unused} declared without a change)"
        );
    }
    println!(
        "{} machines, {} guards, {} turns, {} store calls, {} acquisitions: no violation",
        checked.machines, checked.guards, checked.turns, checked.calls, checked.acquisitions
    );
}

fn read(checker: &mut Checker, input: &Input) -> Result<(), String> {
    let (file, is_trace) = match input {
        Input::SomeUntraced => {
            checker.some_untraced();
            return Ok(());
        }
        Input::Trace(file) => (file, true),
        Input::Changes(file) => (file, false),
    };
    let read = File::open(file)
        .map(BufReader::new)
        .and_then(|lines| match is_trace {
            true => checker.read(lines),
            false => checker.changes(lines),
        });
    read.map_err(|error| format!("{}: {error}", file.display()))
}
