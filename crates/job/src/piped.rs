//! Holds a lock for a program that keeps a pipe to our standard input open. This process cannot end
//! the program, so the lock is released only after the program has closed the pipe (I6). If the
//! lock is lost or this process must exit while the pipe is open, the entry is left to expire.

use std::io::{self, IsTerminal};
use std::time::Duration;

use rustix::io::Errno;
use tracing::{info, warn};

use super::held::{LOST_RELEASE_MAX, RELEASE_MAX, Work, conclude, held_line, renewed};
use super::standard_input::StandardInput;
use leasehold_clock as clock;
use leasehold_core::election::ResourceName;
use leasehold_core::lock::{End as LockEnd, MinHold};
use leasehold_host::duration::shown;
use leasehold_host::exit;
use leasehold_host::signals::{Exit, StopRequest, StopRequests, StopSignal, Stops};
use leasehold_host::sink::Sink;
use leasehold_mongodb::locker::Locker;

const RELEASED: &str = "released";
const KEPT: &str = "released; others can acquire it after the minimum hold (--at-least)";
const LOST: &str = "lost; another process may hold it now: stop the work under the lock";
const RENEWED_AGAIN: &str = "held; MongoDB answers again";
/// Maximum wait until standard output accepts a line. A pipe buffers thousands of lines.
const READ_WITHIN: Duration = Duration::from_secs(5);
/// Maximum length of a reported error, because the client packages read lines of at most 4 KiB.
const ERROR_BYTES_MAX: usize = 1500;
const UNREAD_POLL: Duration = Duration::from_millis(20);

enum Over {
    Closed,
    /// Standard input is still open at a second stop signal, or after `workload.stop_grace`.
    StillOpen,
    Lost,
}

impl Work<'_> {
    pub(super) async fn hold(
        self,
        mut locker: Locker,
        input: &mut StandardInput,
        stops: &mut Stops,
    ) -> Exit {
        if let Err(exit) = self.announce(&locker, stops).await {
            // The program does not know of the lock yet, so releasing the lock is safe.
            locker.withdraw(RELEASE_MAX).await;
            return exit;
        }
        let user = io::stdin().is_terminal().then_some(self.job.messages);
        if let Some(user) = user {
            let patience = shown(self.job.timings.renew_deadline());
            let patience = format!("\nlost if MongoDB does not answer for {patience}");
            user.held(self.token.get(), self.slot, &patience);
        }
        input.watch();
        let (over, stopped) = self.wait(&locker, stops, input).await;
        let mut lost = matches!(over, Over::Lost);
        match over {
            Over::Closed => {
                let end = conclude(&mut locker, false, RELEASE_MAX).await;
                if let (Some(user), Some(LockEnd::Released)) = (user, &end) {
                    user.print(match self.job.args.at_least() {
                        MinHold::NONE => RELEASED,
                        _ => KEPT,
                    });
                }
                lost = !self.is_released(end, false, false);
            }
            Over::Lost if input.is_closed() => {
                conclude(&mut locker, false, LOST_RELEASE_MAX).await;
            }
            // The program may still work under the lock, so the entry is left to expire.
            Over::Lost | Over::StillOpen => locker.abandon(),
        }
        if let Some(user) = user.filter(|_| lost) {
            user.print(LOST);
        }
        match stopped {
            _ if lost => exit::LOCK_LOST.into(),
            Some(stop) => stop.into(),
            None => exit::DONE.into(),
        }
    }

    /// Reports the acquisition to the program. On failure, returns how this process must exit.
    async fn announce(&self, locker: &Locker, stops: &mut Stops) -> Result<(), Exit> {
        let line = match io::stdin().is_terminal() && io::stdout().is_terminal() {
            // Only a program needs the line. A person reads the message on standard error.
            true => String::new(),
            false => held_line(self.job.args.lock(), self.token.get(), self.slot),
        };
        let output = Sink::output();
        let mut rest = line.as_bytes();
        let mut attempts = tokio::time::interval(UNREAD_POLL);
        let unread = tokio::time::sleep(READ_WITHIN);
        tokio::pin!(unread);
        let failed = |why: &str| {
            self.job.messages.say(&format!("given back: {why}"));
            Err(exit::CANNOT_TELL.into())
        };
        loop {
            tokio::select! {
                biased;
                stop = stops.next() => return Err(stop.into()),
                () = &mut unread => {
                    let limit = shown(READ_WITHIN);
                    return failed(&format!("standard output was not read within {limit}"));
                }
                _ = attempts.tick() => {}
            }
            // Checked immediately before the write, because the line starts the program's work.
            if locker.authority().is_none() {
                return Err(exit::LOCK_LOST.into());
            }
            match write(&output, &mut rest) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(_) => return failed("standard output cannot be written"),
            }
        }
    }

    fn report_health(&self, locker: &Locker, failing: bool) {
        let left = locker.authority().map(|authority| authority.valid_until);
        let left = left.map(|until| shown(until.since(clock::boot_now())));
        match left.filter(|_| failing) {
            Some(left) => self.job.messages.print(&format!(
                "renewal failed; lost in {left} unless MongoDB answers"
            )),
            None if failing => {}
            None => self.job.messages.print(RENEWED_AGAIN),
        }
    }

    async fn wait(
        &self,
        locker: &Locker,
        stops: &mut Stops,
        input: &mut StandardInput,
    ) -> (Over, Option<StopSignal>) {
        let (mut status, mut health) = (locker.status(), locker.health());
        let mut failing = false;
        let stop_grace = self.job.config.workload.stop_grace;
        let mut requests = StopRequests::default();
        let mut stopped = None;
        let grace_over = tokio::time::sleep(Duration::MAX);
        tokio::pin!(grace_over);
        loop {
            tokio::select! {
                biased;
                terms = renewed(&mut status, &self.job.timings) => if terms.is_none() {
                    return (Over::Lost, stopped);
                },
                Ok(()) = health.changed(), if io::stdin().is_terminal() => {
                    let fails = health.borrow_and_update().unreachable_until(Duration::ZERO);
                    if fails.is_some() != failing {
                        failing = fails.is_some();
                        self.report_health(locker, failing);
                    }
                }
                // Standard input has ended, so the other program no longer needs the lock.
                () = input.closed() => return (Over::Closed, stopped),
                stop = stops.next() => match requests.arrived() {
                    StopRequest::First => {
                        stopped = Some(stop);
                        if io::stdin().is_terminal() {
                            // The user at the terminal no longer needs the lock.
                            return (Over::Closed, stopped);
                        }
                        grace_over.set(tokio::time::sleep(stop_grace));
                        info!(
                            lock = %self.job.args.lock(), signal = %stop,
                            stop_grace = %shown(stop_grace),
                            "stop signal received; holding the lock until standard input closes, for at most stop_grace"
                        );
                    }
                    StopRequest::Repeated => {}
                    StopRequest::Second => {
                        warn!(
                            lock = %self.job.args.lock(), signal = %stop,
                            "second stop signal, exiting now; lock not released, so it must expire"
                        );
                        return (Over::StillOpen, stopped);
                    }
                },
                () = &mut grace_over, if stopped.is_some() => {
                    warn!(
                        lock = %self.job.args.lock(),
                        "standard input is still open after stop_grace, exiting now; lock not released, so it must expire"
                    );
                    return (Over::StillOpen, stopped);
                }
            }
        }
    }
}

/// Never blocks. Returns true once `rest` is empty.
fn write(output: &Sink, rest: &mut &[u8]) -> rustix::io::Result<bool> {
    match output.write(rest) {
        // A reader that has closed the pipe is not an error.
        Ok(()) | Err(Errno::PIPE) => Ok(true),
        Err(Errno::AGAIN) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Prints a line without the event loop. Returns false if the line is not read in time.
pub(super) fn print_line(line: &str) -> bool {
    let (output, mut rest) = (Sink::output(), line.as_bytes());
    let end = clock::boot_now() + READ_WITHIN;
    loop {
        match write(&output, &mut rest) {
            Ok(false) if clock::boot_now() < end => std::thread::sleep(UNREAD_POLL),
            written => return written == Ok(true),
        }
    }
}

pub(super) fn exit_line(lock: &ResourceName, code: u8, why: &str) -> String {
    let mut line = serde_json::json!({ "lock": lock.as_str(), "exit_code": code });
    if !why.is_empty() {
        line["error"] = why[..why.floor_char_boundary(ERROR_BYTES_MAX)].into();
    }
    format!("{line}\n")
}
