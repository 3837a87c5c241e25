//! Reports a signal to a task, through a pipe that the signal's handler writes to.

use std::io;
use std::os::unix::net::UnixStream as StdUnixStream;

use signal_hook::SigId;
use signal_hook::low_level::{pipe, unregister};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

#[derive(Debug)]
pub(super) struct SignalPipe {
    reader: UnixStream,
    handler: SigId,
}

impl SignalPipe {
    pub(super) fn listen(signal: i32) -> io::Result<Self> {
        let (reader, writer) = StdUnixStream::pair()?;
        reader.set_nonblocking(true)?;
        Ok(Self {
            handler: pipe::register(signal, writer)?,
            reader: UnixStream::from_std(reader)?,
        })
    }

    /// Waits until the signal has arrived at least once since the last call. Cancel safe.
    pub(super) async fn arrived(&mut self) -> io::Result<()> {
        self.reader.read(&mut [0; 256]).await.map(drop)
    }
}

impl Drop for SignalPipe {
    fn drop(&mut self) {
        unregister(self.handler);
    }
}
