//! Standard input of a lock without a command. The end of the input releases the lock.

use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::tcgetpgrp;
use tokio::sync::watch;

use leasehold_guard::dispositions::read_without_stopping;
use leasehold_host::terminal::in_background;

/// Maximum number of bytes discarded before the acquisition. Longer input is assumed to be endless.
const DISCARDED_MAX: usize = 1 << 20;
const BACKGROUND_POLL: Duration = Duration::from_millis(500);
const ENDED: &str =
    "standard input is at its end (/dev/null, a file or a closed pipe), which releases the lock";
/// Reading standard input would stop a background job, and the lock would expire.
const BACKGROUND: &str = "standard input is a terminal, and this job is not in the foreground";

pub(super) fn check() -> Result<(), &'static str> {
    let input = io::stdin();
    if input.is_terminal() {
        return match in_background(input) {
            true => Err(BACKGROUND),
            false => Ok(()),
        };
    }
    let mut input = own_handle().map_err(|_| ENDED)?;
    if input.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Err(ENDED);
    }
    let mut discarded = 0;
    let mut buffer = [0; 4096];
    while discarded < DISCARDED_MAX && is_readable(&input, Some(&Timespec::default())) {
        match input.read(&mut buffer) {
            Ok(0) => return Err(ENDED),
            Ok(length) => discarded += length,
            Err(error) if is_temporary(&error) => {}
            Err(_) => return Err(ENDED),
        }
    }
    Ok(())
}

/// Reads standard input to its end. A job that moves to the background keeps the lock.
pub(super) fn read_to_end() {
    let Ok(mut input) = own_handle() else { return };
    read_without_stopping();
    let mut buffer = [0; 4096];
    loop {
        match input.read(&mut buffer) {
            Ok(0) => return,
            Ok(_) => {}
            // The program at the other end may have made the pipe non-blocking.
            Err(error) if is_temporary(&error) => {
                is_readable(&input, None);
            }
            // The terminal still exists, so the read failed because this job was in the background.
            Err(_) if tcgetpgrp(&input).is_ok() => std::thread::sleep(BACKGROUND_POLL),
            Err(_) => return,
        }
    }
}

pub(super) struct StandardInput {
    /// True at the end of standard input; `None` until standard input is watched.
    closed: Option<watch::Receiver<bool>>,
}

impl StandardInput {
    /// Watches standard input if its end releases the lock. A terminal is watched only after the
    /// acquisition, because a read would stop a process that waits in the background.
    pub(super) fn of(holds_the_lock: bool) -> Self {
        let mut input = Self { closed: None };
        if holds_the_lock && !io::stdin().is_terminal() {
            input.watch();
        }
        input
    }

    /// Reads standard input to its end on a thread, because a terminal cannot be polled.
    pub(super) fn watch(&mut self) {
        self.closed.get_or_insert_with(|| {
            let (sender, closed) = watch::channel(false);
            std::thread::spawn(move || {
                read_to_end();
                sender.send_replace(true);
            });
            closed
        });
    }

    pub(super) async fn closed(&mut self) {
        match &mut self.closed {
            Some(closed) => drop(closed.wait_for(|closed| *closed).await),
            None => std::future::pending().await,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.as_ref().is_some_and(|closed| *closed.borrow())
    }
}

fn own_handle() -> io::Result<File> {
    let input: OwnedFd = io::stdin().as_fd().try_clone_to_owned()?;
    Ok(input.into())
}

fn is_readable(input: &File, timeout: Option<&Timespec>) -> bool {
    loop {
        match poll(&mut [PollFd::new(input, PollFlags::IN)], timeout) {
            Ok(ready) => return ready > 0,
            Err(Errno::INTR) => {}
            Err(_) => return true,
        }
    }
}

fn is_temporary(error: &io::Error) -> bool {
    [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind())
}
