//! The `leasehold` command.

#![forbid(unsafe_code)]

use std::error::Error;
use std::process::ExitCode;

use leasehold::{cli, signals, workload};

fn main() -> ExitCode {
    signals::prepare();
    // The guard and shim stages between a daemon and its command run before anything is set up.
    if let Some(code) = workload::observed_stage(std::env::args_os(), cli::guard_trace) {
        return code;
    }
    let invocation = match cli::parse(std::env::args_os()) {
        Ok(invocation) => invocation,
        Err(stop) => return stop.print(),
    };
    match cli::dispatch(invocation) {
        Ok(code) => code,
        Err(error) => {
            print_chain(&error);
            error.exit_code()
        }
    }
}

/// Prints an error and its causes, one per line.
fn print_chain(error: &dyn Error) {
    use std::io::Write;

    let mut text = format!("leasehold: {error}\n");
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!("  caused by: {cause}\n"));
        source = cause.source();
    }
    // If standard error is closed, the exit code alone reports the failure.
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}
