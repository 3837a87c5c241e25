//! The `leasehold` command.

#![forbid(unsafe_code)]

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use leasehold::{cli, log, signals, workload};
use leasehold_host::terminal;

fn main() -> ExitCode {
    signals::prepare();
    // If this process is a guard or shim between a daemon and its command, it runs only that stage.
    if let Some(code) = workload::observed_stage(std::env::args_os(), cli::guard_trace) {
        return code;
    }
    let invocation = match cli::parse(std::env::args_os()) {
        Ok(invocation) => invocation,
        Err(stop) => return stop.print(),
    };
    cli::dispatch(invocation).unwrap_or_else(|error| {
        if log::writes_json() {
            tracing::error!("{error}");
        } else {
            let mut stderr = std::io::stderr().lock();
            let mut message = format!("leasehold: {error}");
            if stderr.is_terminal() {
                message = terminal::folded(&message);
            }
            message.push('\n');
            // One write, so that the lines of two processes do not mix. If standard error is
            // closed, the exit code alone reports the failure.
            let _ = stderr.write_all(message.as_bytes());
        }
        ExitCode::from(error.exit)
    })
}
