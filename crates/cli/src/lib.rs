//! Code that all commands share: flags, the event loop, output, and the library's options.

#![forbid(unsafe_code)]

pub mod connecting;
pub mod keys;
pub mod names;
pub mod store_elections;
pub mod store_options;
pub mod trace;
pub mod uri_notices;
pub mod values;

use std::io::{self, Write};

use leasehold_host::terminal::fitted;
use leasehold_host::{CommandError, exit};

/// Log message about a server that is not MongoDB.
pub const UNSUPPORTED: &str = "unsupported server: MongoDB-compatible but not MongoDB; acknowledged \
                           writes may not be on a majority, so exclusion is not promised";

/// Runs a command on one thread.
pub fn run_to_end<T>(exit: u8, command: impl Future<Output = T>) -> Result<T, CommandError> {
    run_with(exit, tokio::runtime::Builder::new_current_thread(), command)
}

/// Runs a command on a custom event loop.
pub fn run_with<T>(
    exit: u8,
    mut runtime: tokio::runtime::Builder,
    command: impl Future<Output = T>,
) -> Result<T, CommandError> {
    let runtime = runtime.enable_all().build();
    let runtime = runtime.map_err(CommandError::failed(exit, "start the event loop"))?;
    let ended = runtime.block_on(command);
    // The exit must not wait for a hanging driver call or for other tasks. The kernel closes the
    // sockets.
    std::mem::forget(runtime);
    Ok(ended)
}

/// Prints a line to standard error, for the operator. Standard output carries only the answer.
pub fn say(line: &str) {
    let mut stderr = io::stderr().lock();
    let line = fitted(&stderr, line) + "\n";
    // One write, so that the lines of two processes do not mix.
    let _ = stderr.write_all(line.as_bytes());
}

/// Writes the output. A broken pipe is not an error, because the reader needs no more output.
pub fn answer(text: &[u8]) -> Result<(), CommandError> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(unwritable),
    }
}

/// Returns the error for an output that cannot be written.
pub fn unwritable(error: io::Error) -> CommandError {
    CommandError::failed(exit::CANNOT_TELL, "write to standard output")(error)
}
