//! The work under the lock: the command.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command as Process, ExitCode};
use std::time::Duration;

use tracing::{error, warn};

use super::deadline::Deadline;
use super::inherited::{Held, Inherited, VARIABLE};
use super::voice::Voice;
use super::{Job, LockArgs};
use crate::cli::answer;
use crate::clock;
use crate::config::LockConfig;
use crate::election::{Authority, BootTime, LeaseName, Token};
use crate::exit;
use crate::lock::{Standing, Status};
use crate::locker::Locker;
use crate::signals::{Relays, Stop, StopRequest, StopRequests, Stops};
use crate::workload::{Command, Ended, Orphans, StandbyGuard, Terms, without_ours};

/// Number of SIGKILL.
const KILL: u8 = 9;

/// Maximum time that the exit waits for the release. The next waiter is granted the lock within
/// milliseconds; if MongoDB does not respond, the entry expires.
pub(super) const RELEASE_MAX: Duration = Duration::from_secs(5);

/// The same after a loss, because a script notices the loss only when this process exits.
pub(super) const LOST_RELEASE_MAX: Duration = Duration::from_millis(100);

/// Work to do under a lock.
pub(super) struct Work<'a> {
    pub(super) job: Job<'a>,
    pub(super) token: Token,
    /// The command, prepared in advance except for the lock, if that succeeded.
    pub(super) prepared: &'a mut Option<StandbyGuard>,
}

/// Returns the command to run under the lock; `None` if the lock is only held.
pub(super) fn command(args: &LockArgs, config: &LockConfig) -> Option<Command> {
    let (program, arguments) = args.command.split_first()?;
    let command = Command::new(program).arguments(arguments);
    Some(command.stop_signal(config.workload.stop_signal.number()))
}

impl Work<'_> {
    /// Runs the work, releases the lock, and returns the exit code.
    ///
    /// # Errors
    /// If a system call fails.
    pub(super) async fn run(self, locker: Locker, stops: Stops, relays: Relays) -> io::Result<u8> {
        match command(self.job.args, self.job.config) {
            None => Ok(self.hold(locker, stops).await),
            Some(command) => self.command(command, locker, stops, relays).await,
        }
    }

    /// Runs the command until it is gone.
    async fn command(
        self,
        command: Command,
        mut locker: Locker,
        mut stops: Stops,
        mut relays: Relays,
    ) -> io::Result<u8> {
        let mut status = locker.status();
        let Some(authority) = status.borrow_and_update().authority_at(clock::boot_now()) else {
            release(&mut locker, RELEASE_MAX).await;
            return Ok(exit::LOCK_LOST);
        };
        let kept = Deadline::new().and_then(|deadline| {
            deadline.set(authority.valid_until)?;
            Ok((deadline, Orphans::adopt()?))
        });
        let (deadline, mut orphans) = match kept {
            Ok(kept) => kept,
            Err(error) => {
                release(&mut locker, RELEASE_MAX).await;
                return Err(error);
            }
        };
        let environment = self.environment();
        let prepared = self.prepared.take().map_or_else(|| command.prepare(), Ok);
        let prepared = prepared.and_then(|prepared| Ok(prepared.keeping(deadline.share()?)));
        let mut terms = self.terms(authority);
        let started = prepared.and_then(|prepared| prepared.start(environment, terms, None));
        let mut workload = match started {
            Ok(workload) => workload,
            Err(error) => {
                error!(lock = %self.job.args.name, kind = %error.kind(), "failed to spawn the command");
                release(&mut locker, RELEASE_MAX).await;
                return Ok(exit::CANNOT_EXECUTE);
            }
        };
        let mut was_lost = false;
        let mut requests = StopRequests::default();
        let mut stopped: Option<Stop> = None;
        let mut killed = false;
        let mut fault = None;
        let ended = loop {
            tokio::select! {
                biased;
                Ok(()) = status.changed(), if !was_lost => {
                    let now = status.borrow_and_update().clone();
                    match self.judge(&now) {
                        Some(new) => {
                            terms = new;
                            // If this fails, inner commands keep the previous deadline.
                            let _ = deadline.set(terms.valid_until);
                            workload.extend(terms);
                        }
                        None => {
                            let _ = deadline.set(BootTime::default());
                            was_lost = true;
                            warn!(lock = %self.job.args.name, token = self.token.get(), "lock lost, stopping the command");
                            let kill_at = terms.kill_at_after_loss(clock::boot_now(), &self.job.timings);
                            workload.stop(self.stop_signal(), kill_at);
                        }
                    }
                }
                stop = stops.next() => match requests.arrived() {
                    StopRequest::First => {
                        stopped = Some(stop);
                        let kill_at = clock::boot_now() + self.job.config.workload.stop_grace;
                        workload.stop(self.stop_signal(), kill_at);
                    }
                    StopRequest::Repeated => {}
                    StopRequest::Second => {
                        // A lock that was lost before is reported as lost.
                        killed = !was_lost;
                        workload.kill();
                    }
                },
                number = relays.next() => workload.signal(number),
                ended = workload.ended() => break ended,
                reaped = orphans.reap(), if fault.is_none() => {
                    let Err(error) = reaped;
                    workload.kill();
                    fault = Some(error);
                }
            }
        };
        // If no stop was requested and the command did not end by itself, its guard ended it at the
        // deadline. A process that was frozen past the deadline may see this end before it sees the
        // loss.
        let was_lost = was_lost || (stopped.is_none() && ended.by_us);
        let patience = if was_lost {
            LOST_RELEASE_MAX
        } else {
            RELEASE_MAX
        };
        // Nothing of the command is left, so others may hold the lock from here on (I6).
        release(&mut locker, patience).await;
        match fault {
            Some(error) => Err(error),
            None => Ok(self.exit_code(ended, was_lost, stopped, killed)),
        }
    }

    /// Returns the deadlines while the authority lasts; `None` once it is over.
    fn judge(&self, status: &Status) -> Option<Terms> {
        match status.standing {
            Standing::Held(authority) => Some(self.terms(authority)),
            Standing::Joining
            | Standing::Waiting { .. }
            | Standing::Lost(_)
            | Standing::Leaving
            | Standing::Ended(_) => None,
        }
    }

    fn terms(&self, authority: Authority) -> Terms {
        Terms::new(authority.valid_until, &self.job.timings)
    }

    fn stop_signal(&self) -> i32 {
        self.job.config.workload.stop_signal.number()
    }

    /// Returns the environment variables that describe the lock.
    fn environment(&self) -> Vec<(OsString, OsString)> {
        let variable = |name: &str, value: &str| (name.into(), value.into());
        let mut environment = vec![
            variable("LEASEHOLD_LOCK", self.job.args.name.as_str()),
            variable("LEASEHOLD_TOKEN", &self.token.to_string()),
            variable("LEASEHOLD_LOCK_TOKEN", &self.token.to_string()),
            variable("LEASEHOLD_IDENTITY", self.job.config.identity.as_str()),
        ];
        let held = Held::by_this_process(
            &self.job.args.name,
            self.job.store,
            self.job.args.want,
            self.token,
        );
        // Without /proc the entry could not be verified. Inner commands then wait like any other
        // contender.
        let held = held.map(|held| variable(VARIABLE, &Inherited::of_process().with(held)));
        environment.extend(held);
        environment
    }

    fn exit_code(&self, ended: Ended, was_lost: bool, stopped: Option<Stop>, killed: bool) -> u8 {
        // Whichever process was first to send the signal: on busy cores the guard may be late.
        if killed && ended.by_us {
            return exit::SIGNALLED + KILL;
        }
        if ended.guard_lost {
            self.job
                .voice
                .say("lost the guard of the command; killed the command");
            return exit::LOCK_LOST;
        }
        // A command that ended by itself in time has completed its work.
        if was_lost && ended.by_us {
            return exit::LOCK_LOST;
        }
        if let Some(error) = ended.end.not_executed() {
            self.job
                .voice
                .cannot_execute(&self.job.args.command, &error);
        }
        // A stop signal just before the start prevents the start.
        let not_run = stopped.map_or(exit::LOCK_LOST, Stop::exit_code);
        ended.end.exit_code().unwrap_or(not_run)
    }
}

/// Runs `command` under a lock that an outer command holds. Without a command, prints the lock and
/// waits until standard input closes.
pub(super) fn run_within(
    command: &[OsString],
    lock: &LeaseName,
    held: &Held,
    voice: &Voice,
) -> ExitCode {
    let Some((program, arguments)) = command.split_first() else {
        let line = serde_json::json!({ "lock": lock.as_str(), "token": held.token });
        if answer(format!("{line}\n").as_bytes()).is_err() {
            return ExitCode::from(exit::CANNOT_TELL);
        }
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        return ExitCode::from(exit::DONE);
    };
    // The guard of the outer command ends this process too, and waits for its end. The variables
    // are set again, because another lock may have been acquired in between.
    let mut process = Process::new(program);
    without_ours(&mut process);
    let error = process
        .args(arguments)
        .env("LEASEHOLD_LOCK", lock.as_str())
        .env("LEASEHOLD_TOKEN", held.token.to_string())
        .env("LEASEHOLD_LOCK_TOKEN", held.token.to_string())
        .exec();
    voice.cannot_execute(command, &error);
    ExitCode::from(match error.kind() {
        io::ErrorKind::NotFound => exit::NOT_FOUND,
        _ => exit::CANNOT_EXECUTE,
    })
}

/// Releases the lock, if MongoDB responds within `patience`.
pub(super) async fn release(locker: &mut Locker, patience: Duration) {
    let released = async {
        locker.release().await;
        locker.wait().await
    };
    let _ = tokio::time::timeout(patience, released).await;
}
