use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::unix::process::CommandExt;
use std::process::Command as Process;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{error, warn};

use super::inherited::{Deadline, Held, Inherited, VARIABLE};
use super::messages::JobMessages;
use super::piped::print_line;
use super::{Job, standard_input};
use leasehold_clock as clock;
use leasehold_core::election::{BootTime, ResourceName, Timings, Token};
use leasehold_core::lock::{End as LockEnd, LockStatus, Standing};
use leasehold_guard::{CommandEnd, Orphans, Terms, without_ours};
use leasehold_host::cause::{not_executed, process_limit};
use leasehold_host::duration::shown;
use leasehold_host::exit;
use leasehold_host::signals::{Exit, Relays, StopRequest, StopRequests, StopSignal, Stops};
use leasehold_mongodb::locker::Locker;
use leasehold_mongodb::store::mongo::CommandResult;
use leasehold_supervisor::command::{
    CommandEvent, StandbyCommand, SupervisedCommand, SupervisedEnd,
};

/// Maximum time that the exit waits for the release. Without a release, the entry expires.
pub(super) const RELEASE_MAX: Duration = Duration::from_secs(5);
/// Like [`RELEASE_MAX`], after a loss. Short, because a script learns of the loss only when this
/// process exits.
pub(super) const LOST_RELEASE_MAX: Duration = Duration::from_millis(100);

pub(super) struct Work<'a> {
    pub(super) job: Job<'a>,
    pub(super) token: Token,
    pub(super) slot: Option<u32>,
}

/// Resources of a command, created before the acquisition so that the command starts sooner.
pub(super) struct Prepared {
    deadline: Deadline,
    orphans: Orphans,
}

impl Prepared {
    /// Must be called inside a tokio runtime.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            deadline: Deadline::new()?,
            orphans: Orphans::adopt()?,
        })
    }
}

impl Work<'_> {
    /// Runs the command, and releases the lock once the command is gone. Returns `None` if nothing
    /// was executed.
    pub(super) async fn run(
        self,
        command: &mut StandbyCommand,
        Prepared { deadline, orphans }: &mut Prepared,
        mut locker: Locker,
        (stops, relays): (&mut Stops, &mut Relays),
    ) -> io::Result<Option<Exit>> {
        // Signals that arrived before the start must not reach the command.
        relays.discard();
        let mut status = locker.status();
        let timings = &self.job.timings;
        let terms = terms(&status.borrow_and_update().at(clock::boot_now()), timings);
        let Some(terms) = terms else {
            locker.withdraw(RELEASE_MAX).await;
            return Ok(None);
        };
        let mut command = match self.start(command, deadline, terms) {
            Ok(started) => started,
            Err(not_started) => {
                locker.withdraw(RELEASE_MAX).await;
                return not_started.map(|code| Some(code.into()));
            }
        };
        let mut requests = StopRequests::default();
        let mut stopped = None;
        let mut fault = None;
        let finished = loop {
            tokio::select! {
                biased;
                terms = renewed(&mut status, timings), if !command.is_lost() => match terms {
                    Some(terms) => {
                        // If the write fails, inner commands keep the previous deadline.
                        let _ = deadline.set(terms.valid_until);
                        command.extend(terms);
                    }
                    None => {
                        let _ = deadline.set(BootTime::default());
                        warn!(lock = %self.job.args.lock(), token = self.token.get(), "lock lost, stopping the command");
                        command.lose(command.terms().kill_at_after_loss(clock::boot_now(), timings));
                    }
                },
                stop = stops.next() => match requests.arrived() {
                    StopRequest::First => {
                        stopped = Some(stop);
                        command.stop();
                    }
                    StopRequest::Repeated => {}
                    StopRequest::Second => command.kill(),
                },
                number = relays.next() => {
                    command.signal(number);
                    // A later signal would replace a signal that is not yet on its way to the guard.
                    tokio::task::yield_now().await;
                }
                event = command.next() => match event {
                    // The lock is held until the command's descendants have ended too.
                    CommandEvent::Started { .. } | CommandEvent::Exited => {}
                    CommandEvent::Stuck => {
                        error!(
                            lock = %self.job.args.lock(), token = self.token.get(),
                            "command still runs after SIGKILL; exiting without a release, so \
                             the lock must expire"
                        );
                        // A dropped locker would release the lock while the command runs (I6).
                        locker.abandon();
                        return Ok(Some(exit::LOCK_LOST.into()));
                    }
                    CommandEvent::Gone(finished) => break finished,
                },
                Err(error) = orphans.reap(), if fault.is_none() => {
                    command.kill();
                    fault = Some(error);
                }
            }
        };
        let patience = match finished.lost {
            true => LOST_RELEASE_MAX,
            false => RELEASE_MAX,
        };
        let mut code = self.exit_code(&finished, stopped);
        // A command that was stopped early may have left its work undone.
        let succeeded = code == exit::DONE && stopped.is_none() && fault.is_none();
        if let Some(result) = result(&finished, code) {
            locker.set_result(result);
        }
        // The command and its descendants are gone, so others may hold the lock now (I6).
        match finished.ended.end {
            CommandEnd::Refused | CommandEnd::NotExecuted(_) | CommandEnd::NotSpawned(_) => {
                locker.withdraw(RELEASE_MAX).await;
                if never_began(&finished, stopped.is_some()) && fault.is_none() {
                    return Ok(None);
                }
            }
            CommandEnd::Exited(_) | CommandEnd::Signalled(_) | CommandEnd::Unknown => {
                let mut end = conclude(&mut locker, succeeded, patience).await;
                if end.is_none() && succeeded && self.job.args.once_per().is_some() {
                    // Waits longer for the success to be recorded, because a MongoDB election may
                    // outlast `patience`.
                    let rest = timings.lease_duration().saturating_sub(patience);
                    end = tokio::select! {
                        end = timeout(rest, finish(&mut locker)) => end.ok().flatten(),
                        _ = stops.next() => None,
                    };
                }
                if !self.is_released(end, finished.lost, succeeded) && code == exit::DONE {
                    code = exit::LOCK_LOST;
                }
            }
        }
        let exit = of_terminal(&finished, code, stopped);
        fault.map_or(Ok(Some(exit)), Err)
    }

    /// Reports an unconfirmed release. Returns false if another contender or an operator had
    /// already removed the entry. In that case, the lock was lost before the work ended.
    pub(super) fn is_released(&self, end: Option<LockEnd>, was_lost: bool, success: bool) -> bool {
        let args = self.job.args;
        let (lock, token) = (args.lock(), self.token.get());
        let records = success && args.once_per().is_some();
        let success = |text| if records { text } else { "" };
        match end {
            // The loss was already reported.
            Some(LockEnd::Lost(_)) | None if was_lost => {
                if records {
                    warn!(%lock, token, "command ended after the lock was lost; its success is not recorded");
                }
            }
            Some(LockEnd::Lost(loss)) => {
                let success = success("; its success is not recorded");
                warn!(
                    %lock, token, reason = loss.as_str(),
                    "lock lost while the command ran: another holder may have run at the same time{success}"
                );
                return false;
            }
            Some(LockEnd::Unconfirmed) | None => {
                let success = success("; its success may not be recorded");
                let longest = self.job.timings.lease_duration().max(args.at_least().get());
                let expires_in = shown(longest);
                warn!(
                    %lock, token,
                    "MongoDB did not confirm the release: the lock expires in up to {expires_in}{success}"
                );
            }
            Some(_) => {}
        }
        true
    }

    fn start(
        &self,
        command: &mut StandbyCommand,
        deadline: &Deadline,
        terms: Terms,
    ) -> Result<SupervisedCommand, io::Result<u8>> {
        deadline.set(terms.valid_until).map_err(Err)?;
        let started = deadline
            .share()
            .and_then(|shared| command.start(self.environment(), terms, None, Some(shared)));
        started.map_err(|error| {
            let why = not_executed(&error);
            error!(lock = %self.job.args.lock(), why, "failed to spawn the command");
            Ok(process_limit(&error).map_or(exit::CANNOT_EXECUTE, |_| exit::SYSTEM))
        })
    }

    fn environment(&self) -> Vec<(OsString, OsString)> {
        let Job {
            args,
            config,
            store,
            ..
        } = self.job;
        let mut environment = variables(args.lock(), self.token.get(), self.slot);
        environment.push(("LEASEHOLD_IDENTITY", config.identity.name.to_string()));
        // Without /proc, inner commands cannot verify the entry. They wait like other contenders.
        let held = Held::by_this_process(args.lock(), store, args.want(), (self.token, self.slot));
        environment.extend(held.map(|held| (VARIABLE, Inherited::of_process().with(held))));
        let environment = environment.into_iter();
        environment
            .map(|(name, value)| (name.into(), value.into()))
            .collect()
    }

    fn exit_code(&self, finished: &SupervisedEnd, stopped: Option<StopSignal>) -> u8 {
        let (ended, messages) = (finished.ended, self.job.messages);
        // Checked first, because the lock also counts as lost if this process killed a late guard.
        if finished.killed && (ended.by_us || finished.cut_off) {
            return exit::KILLED;
        }
        if ended.guard_lost {
            messages.say("lost the guard of the command; killed the command");
            return exit::LOCK_LOST;
        }
        // If the command ended before the loss, its own exit code counts, unless the loss cut off
        // its descendants.
        if finished.lost && (ended.by_us || finished.cut_off) {
            return exit::LOCK_LOST;
        }
        if let Some(error) = ended.end.not_executed() {
            messages.cannot_execute(&self.job.args.command, &error);
            if process_limit(&error).is_some() {
                return exit::SYSTEM;
            }
        }
        if finished.is_incomplete() {
            messages.say("the command exited with 0, but its leftover processes were stopped");
            return exit::INCOMPLETE;
        }
        // A stop signal just before the start prevents the start.
        let not_run = stopped.map_or(exit::LOCK_LOST, StopSignal::exit_code);
        ended.end.exit_code().unwrap_or(not_run)
    }
}

/// If a terminal signal ended the command, this process must end by that signal too.
fn of_terminal(finished: &SupervisedEnd, code: u8, stopped: Option<StopSignal>) -> Exit {
    let SupervisedEnd { ended, .. } = finished;
    let CommandEnd::Signalled(number) = ended.end else {
        return code.into();
    };
    match (StopSignal::of_terminal(number), stopped) {
        _ if ended.end.exit_code() != Some(code) || finished.killed => code.into(),
        (Some(key), _) if ended.interrupted => Exit::Key(key),
        (Some(key), None) if !ended.by_us => Exit::Signal(key),
        // The command got its own stop signal instead of the terminal's signal.
        (_, Some(stop)) if stop.is_of_terminal() => Exit::Signal(stop),
        _ => code.into(),
    }
}

/// Returns the result for the history. If leftover processes were stopped, the result keeps the
/// command's own exit code, because 76 would look like a lost lock.
fn result(finished: &SupervisedEnd, code: u8) -> Option<CommandResult> {
    match finished.ended.end {
        CommandEnd::Signalled(number) => Some(CommandResult::Signal(number)),
        CommandEnd::Exited(own) if !finished.lost => Some(CommandResult::Exited {
            code: own,
            leftovers_stopped: finished.leftovers_stopped || finished.cut_off,
        }),
        CommandEnd::Exited(_) | CommandEnd::NotExecuted(_) | CommandEnd::NotSpawned(_) => {
            Some(CommandResult::Exited {
                code,
                leftovers_stopped: false,
            })
        }
        CommandEnd::Refused | CommandEnd::Unknown => None,
    }
}

fn never_began(finished: &SupervisedEnd, stopped: bool) -> bool {
    finished.ended.end == CommandEnd::Refused && !stopped && !finished.killed
}

/// A lock without slots leaves the slot variable of an outer lock unchanged.
fn variables(lock: &ResourceName, token: i64, slot: Option<u32>) -> Vec<(&'static str, String)> {
    let mut variables = vec![
        ("LEASEHOLD_LOCK", lock.to_string()),
        ("LEASEHOLD_TOKEN", token.to_string()),
        ("LEASEHOLD_LOCK_TOKEN", token.to_string()),
    ];
    variables.extend(slot.map(|slot| ("LEASEHOLD_SLOT", slot.to_string())));
    variables
}

pub(super) fn held_line(lock: &ResourceName, token: i64, slot: Option<u32>) -> String {
    let mut line = serde_json::json!({ "lock": lock.as_str(), "token": token });
    if let Some(slot) = slot {
        line["slot"] = slot.into();
    }
    format!("{line}\n")
}

pub(super) async fn renewed(
    status: &mut watch::Receiver<LockStatus>,
    timings: &Timings,
) -> Option<Terms> {
    status.changed().await.ok()?;
    terms(&status.borrow_and_update(), timings)
}

fn terms(status: &LockStatus, timings: &Timings) -> Option<Terms> {
    match status.standing {
        Standing::Held(authority) if status.provisional => {
            Some(Terms::without_grace(authority.valid_until))
        }
        Standing::Held(authority) => Some(Terms::new(authority.valid_until, timings)),
        Standing::Joining
        | Standing::Waiting { .. }
        | Standing::Lost(_)
        | Standing::Leaving
        | Standing::Ended(_) => None,
    }
}

/// Runs `command` under a lock that an outer command holds, or waits until standard input closes.
pub(super) fn run_within(
    command: &[OsString],
    lock: &ResourceName,
    held: &Held,
    messages: &JobMessages,
) -> u8 {
    let Some((program, arguments)) = command.split_first() else {
        if !print_line(&held_line(lock, held.token, held.slot)) {
            messages
                .say("standard output cannot be written; the outer command still holds the lock");
            return exit::CANNOT_TELL;
        }
        if io::stdin().is_terminal() {
            messages.held(held.token, held.slot, "");
        }
        standard_input::read_to_end();
        return exit::DONE;
    };
    // Sets the variables again, because a nested lock may have changed them.
    let mut process = Process::new(program);
    without_ours(&mut process);
    process.args(arguments);
    let error = process.envs(variables(lock, held.token, held.slot)).exec();
    messages.cannot_execute(command, &error);
    match error.kind() {
        _ if process_limit(&error).is_some() => exit::SYSTEM,
        io::ErrorKind::NotFound => exit::NOT_FOUND,
        _ => exit::CANNOT_EXECUTE,
    }
}

pub(super) async fn conclude(
    locker: &mut Locker,
    succeeded: bool,
    patience: Duration,
) -> Option<LockEnd> {
    let concluded = async {
        match succeeded {
            true => locker.succeed().await,
            false => locker.release().await,
        }
        finish(locker).await
    };
    timeout(patience, concluded).await.ok()?
}

/// Returns `None` if the contender failed, because the lock was then not released.
async fn finish(locker: &mut Locker) -> Option<LockEnd> {
    locker.wait().await.ok().map(|finished| finished.end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::election::{Authority, Claim, Session};
    use leasehold_guard::Termination;

    #[test]
    fn only_a_refused_command_never_began() {
        let finished = |end, killed| SupervisedEnd {
            ended: Termination {
                end,
                by_us: true,
                interrupted: false,
                lingered: false,
                guard_lost: false,
            },
            exited: false,
            cut_off: false,
            leftovers_stopped: false,
            stopped_after: None,
            lost: true,
            killed,
        };
        assert!(never_began(&finished(CommandEnd::Refused, false), false));
        assert!(!never_began(&finished(CommandEnd::Refused, true), false));
        assert!(!never_began(&finished(CommandEnd::Refused, false), true));
        // In these cases, the job must not wait for the lock again. The command may have run for a
        // moment, or can never run.
        for end in [
            CommandEnd::Signalled(9),
            CommandEnd::Unknown,
            CommandEnd::NotExecuted(2),
        ] {
            assert!(!never_began(&finished(end, false), false), "{end:?}");
        }
    }

    #[tokio::test]
    async fn the_lock_is_lost_if_the_contender_ends() {
        let authority = Authority {
            token: Token::ZERO,
            valid_until: clock::boot_now() + Duration::from_secs(3600),
        };
        let held = LockStatus {
            standing: Standing::Held(authority),
            since: BootTime::default(),
            claim: Claim::from_bytes([0; 16]),
            session: Session::from_bytes([0; 16]),
            provisional: false,
            slot: None,
            token_highest: Token::ZERO,
            store_reached: true,
        };
        let (sender, mut status) = watch::channel(held.clone());
        let timings = Timings::default();
        let valid_until = authority.valid_until;
        sender.send_replace(LockStatus {
            provisional: true,
            ..held.clone()
        });
        let terms = renewed(&mut status, &timings).await;
        assert_eq!(terms, Some(Terms::without_grace(valid_until)));
        sender.send_replace(held);
        let terms = renewed(&mut status, &timings).await;
        assert_eq!(terms, Some(Terms::new(valid_until, &timings)));
        drop(sender);
        assert_eq!(renewed(&mut status, &timings).await, None);
    }
}
