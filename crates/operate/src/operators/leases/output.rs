//! Writes to standard output on another thread. A reader that accepts no data then blocks neither the
//! reaction to signals nor the view of the collection.

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc;
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Time limit for the last write, before the exit.
const LAST_WRITE_MAX: Duration = Duration::from_secs(1);

pub(super) async fn write(text: String) -> io::Result<()> {
    #[allow(
        clippy::disallowed_methods,
        reason = "at most one write is under way, and the exit does not wait for it"
    )]
    let written = tokio::task::spawn_blocking(move || write_now(&text)).await;
    written.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Writes before the exit, within a bounded time. Fails only if the terminal was closed or accepts
/// no data.
pub(super) fn write_last(text: &'static str) {
    let (sender, written) = mpsc::channel();
    let _ = std::thread::Builder::new().spawn(move || sender.send(write_now(text)));
    let _ = written.recv_timeout(LAST_WRITE_MAX);
}

fn write_now(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Waits until the reader of standard output closes the pipe. Never returns if the output is a
/// file.
pub(super) async fn closed() {
    if let Ok(output) = watched()
        && output.ready(Interest::ERROR).await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

fn watched() -> io::Result<AsyncFd<OwnedFd>> {
    let output = io::stdout().as_fd().try_clone_to_owned()?;
    // The function is deprecated because some types can change their descriptor; an `OwnedFd` never
    // changes its descriptor. The replacement function is unsafe, and this crate forbids unsafe
    // code.
    #[allow(deprecated)]
    AsyncFd::with_interest(output, Interest::ERROR)
}
