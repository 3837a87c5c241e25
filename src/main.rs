//! The `leasehold` command.

#![forbid(unsafe_code)]

use std::error::Error;
use std::process::ExitCode;

use leasehold::{cli, workload};

fn main() -> ExitCode {
    // The stages between a daemon and its command, before anything is set up.
    if let Some(code) = workload::stage(std::env::args_os()) {
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

/// An error and its causes, each on its line.
fn print_chain(error: &dyn Error) {
    use std::io::Write;

    let mut text = format!("leasehold: {error}\n");
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!("  caused by: {cause}\n"));
        source = cause.source();
    }
    // Where standard error is gone, only the exit code can tell.
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}
