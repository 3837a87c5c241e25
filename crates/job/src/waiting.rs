use std::io::{self, IsTerminal};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tracing::{Level, enabled, info, warn};

use super::Job;
use super::contender_log::{ContenderLog, WaitReports};
use super::observation_cache::ObservationCache;
use super::standard_input::StandardInput;
use leasehold_cli::connecting;
use leasehold_clock as clock;
use leasehold_core::election::{Authority, BootTime, Timings, WallMillis};
use leasehold_core::lock::{Ahead, End, LockStatus, QUEUE_MAX, Standing};
use leasehold_host::duration::shown;
use leasehold_host::exit;
use leasehold_host::log::{ErrorThrottle, millis};
use leasehold_host::program::check_executable;
use leasehold_host::signals::{Exit, Stops};
use leasehold_mongodb::locker::{LockDecision, Locker, waits_for_others};
use leasehold_mongodb::store::foreign_document;
use leasehold_status::dates::dated;

/// Time limit for leaving the queue. If the entry remains, other waiters evict it after it expires.
pub(super) const LEAVE_MAX: Duration = Duration::from_secs(2);
const UNANSWERED_LEAVE_MAX: Duration = Duration::from_millis(100);
/// Minimum wait for the first response of MongoDB, which shows whether the lock is free.
const FIRST_ANSWER_MIN: Duration = Duration::from_secs(1);
/// With an unlimited wait, a job gives up once MongoDB has been unresponsive for this many lease
/// durations. The limit exceeds any election or restart, but keeps cron jobs from piling up.
const SILENCE_MAX_LEASES: u32 = 10;
/// Minimum wait for a new attempt if the lock was lost before the work began.
const LEFT_MIN: Duration = Duration::from_millis(1);
/// Maximum number of holders named in a line, because a name may be 253 bytes long.
const HOLDERS_NAMED_MAX: usize = 3;

#[derive(Clone, Copy)]
pub(super) struct WaitLimits {
    pub(super) wait: Option<Duration>,
    pub(super) timings: Timings,
}

impl WaitLimits {
    /// Subtracts this time from the wait, but leaves enough for another attempt.
    pub(super) fn spend(&mut self, time: Duration) {
        if let Some(wait) = self.wait.as_mut().filter(|wait| !wait.is_zero()) {
            *wait = wait.saturating_sub(time).max(LEFT_MIN);
        }
    }

    fn limit(&self) -> Option<Duration> {
        match self.wait {
            // A replica set usually elects a primary within this time.
            Some(Duration::ZERO) => Some(self.timings.renew_deadline()),
            wait => wait,
        }
    }

    /// Returns the maximum time without an answer from MongoDB.
    fn patience(&self) -> Duration {
        self.limit().unwrap_or(self.silence())
    }

    fn silence(&self) -> Duration {
        self.timings.lease_duration() * SILENCE_MAX_LEASES
    }
}

pub(super) enum Waited {
    Held(Authority),
    /// The lock was acquired, but lost before this task noticed the acquisition. Nothing has run.
    NeverHeld,
    NotAcquired,
    /// With `--no-wait`, only holders and waiters that seem to be dead are in the way.
    Silent,
    /// This process exits with this result and makes no further attempt.
    Over(Exit),
}

pub(super) struct LockAttempt<'a> {
    job: Job<'a>,
    limits: WaitLimits,
    /// Number of this attempt for messages, as in ` (attempt 2 of 3)`; empty without `--retries`.
    number: String,
    /// False after dead holders have been watched, so that a job without a wait ends.
    watches: bool,
    reported: Arc<WaitReports>,
}

impl<'a> LockAttempt<'a> {
    /// `retries_left` is the number of attempts that may follow this attempt.
    pub(super) fn new(job: Job<'a>, limits: WaitLimits, retries_left: u32, watches: bool) -> Self {
        let reported = Arc::new(WaitReports {
            announced: job.args.verbose.into(),
            given_up: false.into(),
            joins_again_at: 0.into(),
        });
        let retries = u64::from(job.args.retries);
        let number = match retries {
            0 => String::new(),
            _ => {
                let number = retries + 1 - u64::from(retries_left);
                format!(" (attempt {number} of {})", retries + 1)
            }
        };
        Self {
            job,
            limits,
            number,
            watches,
            reported,
        }
    }

    pub(super) fn log(&self, cache: ObservationCache) -> ContenderLog {
        ContenderLog {
            lock: self.job.args.lock().clone(),
            identity: self.job.config.identity.name.clone(),
            retry_interval: self.job.timings.retry_interval(),
            patience: self.limits.patience(),
            messages: self.job.messages.clone(),
            cache,
            reported: Arc::clone(&self.reported),
            reads: ErrorThrottle::default(),
            writes: ErrorThrottle::default(),
            printed: None,
        }
    }

    pub(super) async fn wait(
        &self,
        locker: &mut Locker,
        input: &mut StandardInput,
        stops: &mut Stops,
    ) -> io::Result<Waited> {
        let began = clock::boot_now();
        let (mut status, mut health) = (locker.status(), locker.health());
        let mut limit = self.limits.limit().map(|limit| began + limit);
        let mut over = false;
        let mut reported = None;
        let store = locker.store_info();
        let has_answered = || store.borrow().is_some();
        let connecting = connecting::unanswered(&self.job.config.mongodb.uri, has_answered);
        let (mut connecting, mut is_connecting) = (pin!(connecting), true);
        loop {
            let now = status.borrow_and_update().clone();
            if over && waits_for_others(&now) {
                return Ok(self.give_up(locker, &now, began).await);
            }
            self.log_holders(&now, &mut reported);
            let silence = self.limits.silence();
            let silent = health.borrow_and_update().unreachable_until(silence);
            let silent = clock::until(silent.filter(|_| limit.is_none()));
            tokio::select! {
                biased;
                stop = stops.next() => {
                    let failed = health.borrow().failed();
                    self.leave(locker, failed).await;
                    return Ok(Waited::Over(stop.into()));
                }
                () = input.closed() => {
                    let failed = health.borrow().failed();
                    self.leave(locker, failed).await;
                    return Ok(Waited::Over(self.job.abandoned().into()));
                }
                decided = locker.decided() => return Ok(match decided? {
                    LockDecision::Held(authority) => Waited::Held(authority),
                    LockDecision::Lost(_) => {
                        locker.withdraw(LEAVE_MAX).await;
                        Waited::NeverHeld
                    }
                    LockDecision::Refused(failure) => {
                        self.unanswered(locker, began, &failure.to_string()).await
                    }
                    LockDecision::Ended(end) => self.ended(&end),
                }),
                () = clock::until(limit) => {
                    if let Some(later) = self.limit_after_rollback(limit) {
                        limit = Some(later);
                        continue;
                    }
                    let first_answer = began + FIRST_ANSWER_MIN;
                    let failed = health.borrow().failed();
                    if now.store_reached || failed || clock::boot_now() >= first_answer {
                        return Ok(self.give_up(locker, &now, began).await);
                    }
                    (limit, over) = (Some(first_answer), true);
                }
                () = silent => {
                    let why = locker.failure().map(|failure| failure.to_string());
                    let why = why.unwrap_or_default();
                    return Ok(self.unanswered(locker, began, &why).await);
                }
                servers = &mut connecting, if is_connecting => {
                    is_connecting = false;
                    self.log_connecting(&servers);
                }
                Ok(()) = status.changed() => {}
                Ok(()) = health.changed() => {}
            }
        }
    }

    /// Without a wait, a job would otherwise end before each new attempt, and this host would
    /// remember the lost document until it reboots.
    fn limit_after_rollback(&self, limit: Option<BootTime>) -> Option<BootTime> {
        let again = self.reported.joins_again_at.load(Ordering::Relaxed);
        let later = BootTime::from_nanos(again) + self.limits.timings.operation_timeout();
        let extends = self.limits.wait == Some(Duration::ZERO) && limit < Some(later);
        extends.then_some(later)
    }

    /// Leaves the queue after a stop request. Logs no retries if MongoDB has never answered.
    async fn leave(&self, locker: &mut Locker, failed: bool) {
        if failed && !locker.status().borrow().store_reached {
            self.reported.given_up.store(true, Ordering::Relaxed);
        }
        // Each client examines the primary before its first write. If the primary has not answered,
        // no join has been sent, so there is no entry to remove.
        let store = locker.store_info();
        let is_unsent = || store.borrow().is_none();
        if is_unsent() {
            locker.withdraw(UNANSWERED_LEAVE_MAX).await;
        }
        if !is_unsent() {
            // An unanswered join may have left an entry.
            locker.withdraw(LEAVE_MAX).await;
        }
    }

    /// Gives up after the wait, unless the lock was granted at the last moment.
    async fn give_up(&self, locker: &mut Locker, last: &LockStatus, began: BootTime) -> Waited {
        // The exit code reports a conflict only if another holder or a full queue is in the way.
        if !locker.is_kept_by_others(last) {
            let why = locker.failure().map(|failure| failure.to_string());
            let why = why.unwrap_or_else(|| match last.store_reached {
                true => "MongoDB answers too slowly".to_owned(),
                false => "MongoDB does not answer".to_owned(),
            });
            return self.unanswered(locker, began, &why).await;
        }
        let whom = wait_reason(last).filter(|_| waits_for_others(last));
        let whom = whom.unwrap_or_else(|| format!("queue is full ({QUEUE_MAX} waiting)"));
        locker.withdraw(LEAVE_MAX).await;
        let wait = shown(self.limits.limit().unwrap_or_default());
        let messages = self.job.messages;
        let refused = format!("not acquired within {wait}{}: {whom}", self.number);
        // With --once-per, a wait that ends without a success is a failure, because another job
        // probably hangs.
        match self.job.args.once_per().is_some() && self.limits.wait != Some(Duration::ZERO) {
            true => messages.say(&refused),
            false => messages.left_to_others(&refused),
        }
        Waited::NotAcquired
    }

    /// Ends the wait if MongoDB does not respond. An unanswered join may still create an entry.
    async fn unanswered(&self, locker: &mut Locker, began: BootTime, why: &str) -> Waited {
        let waited = shown(clock::boot_now().since(began));
        self.reported.given_up.store(true, Ordering::Relaxed);
        locker.withdraw(UNANSWERED_LEAVE_MAX).await;
        let messages = self.job.messages;
        messages.say(&format!("gave up after {waited}: {why}"));
        Waited::Over(exit::STORE_UNREACHABLE.into())
    }

    fn ended(&self, end: &End) -> Waited {
        let Job { args, messages, .. } = self.job;
        let wrong = |why: &str| {
            messages.say(why);
            Waited::Over(exit::CONFIGURATION.into())
        };
        match end {
            // A job in a fresh container has no earlier observations. Without this watch, each job
            // would end before it has watched a dead holder for a lease duration.
            End::Busy { holding, ahead, .. } if self.watches && ahead.iter().all(seems_dead) => {
                let holders = holders(ahead, *holding);
                let watching = format!("{holders}; no recent renewal, watching until it expires");
                messages.left_to_others(&watching);
                Waited::Silent
            }
            End::Busy {
                holding,
                waiting,
                ahead,
            } => {
                let holders = holders(ahead, *holding);
                let waiters = match waiting {
                    0 => String::new(),
                    1 => "; 1 waits".to_owned(),
                    more => format!("; {more} wait"),
                };
                let refused = format!("not acquired{}: {holders}{waiters}", self.number);
                messages.left_to_others(&refused);
                Waited::NotAcquired
            }
            End::WrongSlots { has: 0 } => {
                wrong("in use without slots: omit --slots, or use another name")
            }
            End::WrongSlots { has } => wrong(&format!(
                "in use with --slots {has}; all users must pass the same value"
            )),
            End::Foreign { why } => wrong(&foreign_document(why, "lock")),
            End::TokensExhausted => wrong("token exhausted; choose another lock name"),
            End::Skipped { ago } => {
                // Rounded down, because milliseconds would only be noise.
                let ago = shown(Duration::from_secs(ago.as_secs()));
                messages.left_to_others(&format!("skipped: it succeeded {ago} ago"));
                Waited::Over(args.skipped_exit_code.into())
            }
            End::Lost(_) => Waited::NeverHeld,
            End::GaveUp | End::Released | End::Unconfirmed => Waited::NotAcquired,
        }
    }

    /// Logs the servers but no cause, because the log line of the first failed call names the
    /// cause.
    fn log_connecting(&self, servers: &str) {
        let (messages, lock) = (self.job.messages, self.job.args.lock());
        let limit = self.limits.patience();
        let progress = connecting::progress(servers, limit, None);
        if messages.quiet {
            return;
        }
        if messages.is_json() {
            info!(%lock, servers, limit_ms = millis(limit), "connecting to MongoDB");
        } else if !messages.is_plain() {
            info!(%lock, "{progress}");
        } else if enabled!(Level::INFO) {
            messages.print(&progress);
        }
    }

    /// Reports the holders: at a terminal after each change, otherwise only once, in the log.
    fn log_holders(&self, status: &LockStatus, reported: &mut Option<Standing>) {
        let messages = self.job.messages;
        // At the head of the queue of a free lock, a contender waits only for its own write.
        if !waits_for_others(status) || reported.as_ref() == Some(&status.standing) {
            return;
        }
        let Some(whom) = wait_reason(status) else {
            return;
        };
        let first = reported.is_none();
        *reported = Some(status.standing.clone());
        if first {
            self.warn_of_program();
        }
        if messages.quiet {
            return;
        }
        self.reported.announced.store(true, Ordering::Relaxed);
        let (lock, identity) = (self.job.args.lock(), &self.job.config.identity.name);
        if messages.is_plain() {
            if enabled!(Level::INFO) && (first || io::stderr().is_terminal()) {
                messages.print(&format!("waiting: {whom}"));
            }
        } else if first && messages.is_json() {
            info!(%lock, %identity, whom, "waiting for the lock");
        } else if first {
            info!(%lock, %identity, "waiting for the lock: {whom}");
        }
    }

    /// Warns early if the program's name may be misspelt. This is not an error, because the program
    /// may be installed during the wait; flock(1) allows this too.
    fn warn_of_program(&self) {
        let program = self.job.args.command.first();
        if let Some(Err(error)) = program.map(|program| check_executable(program)) {
            warn!(
                lock = %self.job.args.lock(),
                "{}; waiting anyway, because the program may be installed in the meantime",
                error.problem()
            );
        }
    }
}

/// Compares clocks of different hosts, so the result only decides whether to watch the entry.
fn seems_dead(entry: &Ahead) -> bool {
    entry.silent && !entry.work_done
}

fn wait_reason(status: &LockStatus) -> Option<String> {
    let Standing::Waiting {
        position,
        holding,
        ahead,
    } = &status.standing
    else {
        return None;
    };
    let place = match position {
        0 => "next in the queue".to_owned(),
        1 => "behind 1 other in the queue".to_owned(),
        more => format!("behind {more} others in the queue"),
    };
    Some(format!("{}; {place}", holders(ahead, *holding)))
}

fn holders(ahead: &[Ahead], holding: usize) -> String {
    let holders = ahead.iter().filter(|ahead| ahead.holds);
    let names: Vec<_> = holders
        .take(HOLDERS_NAMED_MAX)
        .map(|holder| {
            let kept = " (its work has ended, its place is kept)";
            let over = if holder.work_done { kept } else { "" };
            let since = match holder.since {
                WallMillis(0) => String::new(),
                at => format!(" since {}", dated(at, clock::wall_now())),
            };
            let mode = holder.mode.as_str();
            format!("{} ({mode}){since}{over}", holder.identity)
        })
        .collect();
    if names.is_empty() {
        return "being handed over".to_owned();
    }
    let others = match holding.saturating_sub(names.len()) {
        0 => String::new(),
        1 => " and 1 other".to_owned(),
        more => format!(" and {more} others"),
    };
    format!("held by {}{others}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use leasehold_core::election::Identity;
    use leasehold_core::lock::EntryMode;

    use super::*;

    #[test]
    fn an_interrupted_wait_continues_with_the_rest() {
        let seconds = Duration::from_secs;
        let spent = |wait, times: &[u64]| {
            let mut limits = WaitLimits {
                wait,
                timings: Timings::default(),
            };
            times.iter().for_each(|time| limits.spend(seconds(*time)));
            limits.limit()
        };
        assert_eq!(spent(Some(seconds(10)), &[3, 4]), Some(seconds(3)));
        assert_eq!(spent(Some(seconds(10)), &[11]), Some(LEFT_MIN));
        assert_eq!(spent(None, &[11]), None);
        // With --no-wait, a contender still waits for MongoDB to respond.
        assert_eq!(spent(Some(Duration::ZERO), &[11]), Some(seconds(18)));
    }

    #[test]
    fn the_date_of_a_holder_is_followed_by_its_age() {
        let now = clock::wall_now().duration_since(std::time::UNIX_EPOCH);
        let now = i64::try_from(now.expect("after 1970").as_millis()).expect("a date");
        let held_since = |since| {
            let web = Identity::new("web-1").expect("a name");
            let ahead = Ahead {
                identity: web,
                mode: EntryMode::Exclusive,
                token: None,
                holds: true,
                work_done: false,
                silent: false,
                since: WallMillis(since),
            };
            holders(&[ahead], 1)
        };
        let text = held_since(now - 372_000);
        let since = "held by web-1 (exclusive) since 20";
        assert!(
            text.starts_with(since) && text.ends_with("Z (6m12s ago)"),
            "{text}"
        );
        assert_eq!(held_since(0), "held by web-1 (exclusive)");
    }
}
