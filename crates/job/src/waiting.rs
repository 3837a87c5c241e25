//! Waits for the lock, and reports the current holders.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tracing::info;

use super::LockArgs;
use super::contender_log::ContenderLog;
use super::messages::JobMessages;
use super::observation_cache::ObservationCache;
use super::piped::StandardInput;
use super::store_answers::{StoreAnswers, StoreState, seconds};
use leasehold_clock as clock;
use leasehold_core::election::{Authority, BootTime, Identity, ResourceName, Timings, WallMillis};
use leasehold_core::lock::{Ahead, End, LockStatus, QUEUE_MAX, Standing};
use leasehold_host::signals::{StopSignal, Stops};
use leasehold_mongodb::locker::{Locker, waits_for_others};
use leasehold_status::render::date;

/// Maximum time that a stopped wait spends on leaving the queue. If the entry remains, other
/// waiters evict it.
const LEAVE_MAX: Duration = Duration::from_secs(2);
/// Maximum time that a stopped wait spends on leaving if MongoDB does not respond. A join whose
/// response was lost may have left an entry, but the wait is over.
const UNANSWERED_LEAVE_MAX: Duration = Duration::from_millis(100);
/// Minimum time to wait for the first response of MongoDB, even if the wait for other holders is
/// shorter. A caller with a shorter wait wants to know if the lock is free now.
const FIRST_ANSWER_MIN: Duration = Duration::from_secs(1);
/// Number of lease durations to wait for an unresponsive MongoDB if nothing else bounds the wait.
/// This is far longer than an election or a restart, but ends jobs that are started again and
/// again.
const SILENCE_MAX_LEASES: u32 = 10;
/// Minimum rest of a wait after a lock was acquired and lost before the work began.
const LEFT_MIN: Duration = Duration::from_millis(1);

/// Maximum number of holders named in a line, because a name may have 253 bytes.
const HOLDERS_NAMED_MAX: usize = 3;

/// Limits of the wait.
pub(super) struct WaitLimits {
    /// Limit of the wait for other holders; `None` if unlimited.
    wait: Option<Duration>,
    /// Limit for an unresponsive MongoDB with `--no-wait`.
    store: Duration,
    /// Limit for an unresponsive MongoDB if the wait for other holders is unlimited.
    silence: Duration,
}

impl WaitLimits {
    pub(super) fn of(args: &LockArgs, timings: &Timings) -> Self {
        Self {
            wait: args.limit(),
            // A set without a primary often has one again within this time.
            store: timings.renew_deadline(),
            silence: timings.lease_duration() * SILENCE_MAX_LEASES,
        }
    }

    /// Reduces a wait for other holders by this time. The next attempt is made in any case.
    pub(super) fn spend(&mut self, time: Duration) {
        let left = |wait: Duration| wait.saturating_sub(time).max(LEFT_MIN);
        self.wait = self.wait.map(|wait| match wait.is_zero() {
            true => wait,
            false => left(wait),
        });
    }

    fn limit(&self) -> Option<Duration> {
        match self.wait {
            Some(Duration::ZERO) => Some(self.store),
            wait => wait,
        }
    }
}

/// Result of the wait.
pub(super) enum Waited {
    Held(Authority),
    /// The lock was acquired and lost before this task saw it held, so nothing has run.
    NeverHeld,
    NotAcquired,
    /// The work succeeded recently.
    Skipped,
    Unreachable,
    /// Another attempt cannot succeed.
    Wrong,
    /// The program that asked for the lock closed our standard input.
    Abandoned,
    Stopped(StopSignal),
    Broken(io::Error),
}

/// Monitors one attempt, and reports it.
pub(super) struct Watcher {
    name: ResourceName,
    identity: Identity,
    voice: JobMessages,
    /// True if the acquisition is logged at level info, because the user requested it or because
    /// the wait was reported.
    announced: Arc<AtomicBool>,
    retry_interval: Duration,
    store: watch::Sender<StoreState>,
}

impl Watcher {
    pub(super) fn new(
        args: &LockArgs,
        identity: Identity,
        voice: JobMessages,
        retry_interval: Duration,
    ) -> Self {
        Self {
            name: args.name.clone(),
            identity,
            voice,
            announced: Arc::new(AtomicBool::new(args.verbose)),
            retry_interval,
            store: watch::channel(StoreState::default()).0,
        }
    }

    pub(super) fn surfaces(&self, cache: ObservationCache) -> ContenderLog {
        let (lock, identity) = (self.name.clone(), self.identity.clone());
        ContenderLog {
            store: StoreAnswers::new(
                lock.clone(),
                identity.clone(),
                self.retry_interval,
                self.store.clone(),
            ),
            lock,
            identity,
            cache,
            announced: Arc::clone(&self.announced),
        }
    }

    /// Waits until the lock is held, or until the wait is over.
    pub(super) async fn wait(
        &self,
        locker: &mut Locker,
        mut status: watch::Receiver<LockStatus>,
        patience: &WaitLimits,
        input: &mut StandardInput,
        stops: &mut Stops,
    ) -> Waited {
        let began = clock::boot_now();
        let mut store = self.store.subscribe();
        let mut limit = patience.limit().map(|limit| began + limit);
        let mut over = false;
        let mut said = String::new();
        loop {
            let now = status.borrow_and_update().clone();
            if let Some(authority) = now.authority_at(clock::boot_now()) {
                return Waited::Held(authority);
            }
            if let Standing::Lost(_) = now.at(clock::boot_now()).standing {
                locker.give_up().await;
                let _ = tokio::time::timeout(LEAVE_MAX, locker.wait()).await;
                return Waited::NeverHeld;
            }
            let answers = store.borrow_and_update().clone();
            if let Some(refusal) = answers.health.refusal(&now) {
                let why = refusal.to_string();
                return self.unanswered(locker, began, &why).await;
            }
            if over && waits_for_others(&now) {
                return self.give_up(locker, patience, &now, began).await;
            }
            self.log_holders(&now, &mut said);
            let silent = answers.health.unreachable_until(patience.silence);
            let silent = until(silent.filter(|_| limit.is_none()));
            tokio::select! {
                biased;
                stop = stops.next() => {
                    locker.give_up().await;
                    let _ = tokio::time::timeout(LEAVE_MAX, locker.wait()).await;
                    return Waited::Stopped(stop);
                }
                () = input.closed() => {
                    locker.give_up().await;
                    let _ = tokio::time::timeout(LEAVE_MAX, locker.wait()).await;
                    return Waited::Abandoned;
                }
                finished = locker.wait() => return match finished {
                    Ok(finished) => self.ended(&finished.end),
                    Err(error) => Waited::Broken(error),
                },
                () = until(limit) => {
                    let first_answer = began + FIRST_ANSWER_MIN;
                    if now.store_reached || answers.health.failed() || clock::boot_now() >= first_answer {
                        return self.give_up(locker, patience, &now, began).await;
                    }
                    (limit, over) = (Some(first_answer), true);
                }
                () = silent => {
                    let why = answers.health.failure().map(ToString::to_string);
                    let why = why.unwrap_or_default();
                    return self.unanswered(locker, began, &why).await;
                }
                Ok(()) = status.changed() => {}
                Ok(()) = store.changed() => {}
            }
        }
    }

    /// Leaves the queue at the end of the wait. The lock may have been granted just now.
    async fn give_up(
        &self,
        locker: &mut Locker,
        patience: &WaitLimits,
        last: &LockStatus,
        began: BootTime,
    ) -> Waited {
        let answers = self.store.borrow().clone();
        // Only another holder or a full queue is a conflict.
        if !(answers.health).is_kept_by_others(last, clock::boot_now(), patience.store) {
            let failed_last = || locker.last_failure().map(|failure| failure.to_string());
            let failed = answers.health.failure().map(ToString::to_string);
            let why = failed.or_else(|| answers.doubt());
            let why = why.or_else(failed_last);
            let why = why.unwrap_or_else(|| match last.store_reached {
                true => "MongoDB answers too slowly".to_owned(),
                false => "MongoDB does not answer".to_owned(),
            });
            return self.unanswered(locker, began, &why).await;
        }
        let whom = wait_reason(last).filter(|_| waits_for_others(last));
        let whom = whom.unwrap_or_else(|| format!("queue is full ({QUEUE_MAX} waiting)"));
        locker.give_up().await;
        let _ = tokio::time::timeout(LEAVE_MAX, locker.wait()).await;
        let wait = humantime::format_duration(patience.limit().unwrap_or_default());
        self.voice
            .held_by_others(&format!("not acquired within {wait}: {whom}"));
        Waited::NotAcquired
    }

    /// Ends the wait, because MongoDB does not respond or rejects the calls. If the response to the
    /// join was lost, its entry may still appear; the command does not wait for that.
    async fn unanswered(&self, locker: &mut Locker, began: BootTime, why: &str) -> Waited {
        let waited = seconds(clock::boot_now().since(began));
        self.store.send_modify(StoreState::give_up);
        locker.give_up().await;
        let _ = tokio::time::timeout(UNANSWERED_LEAVE_MAX, locker.wait()).await;
        self.voice.say(&format!("gave up after {waited}: {why}"));
        Waited::Unreachable
    }

    fn ended(&self, end: &End) -> Waited {
        match end {
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
                self.voice
                    .held_by_others(&format!("not acquired: {holders}{waiters}"));
                Waited::NotAcquired
            }
            End::WrongSlots { has: 0 } => {
                self.voice
                    .say("in use without slots: omit --slots, or use another name");
                Waited::Wrong
            }
            End::WrongSlots { has } => {
                self.voice.say(&format!(
                    "in use with --slots {has}; all users must pass the same value"
                ));
                Waited::Wrong
            }
            End::Foreign { why } => {
                self.voice.say(&format!(
                    "the document of this name is not a lock: {why}; use another name"
                ));
                Waited::Wrong
            }
            End::Skipped { ago } => {
                let ago = humantime::format_duration(Duration::from_secs(ago.as_secs()));
                self.voice
                    .done_before(&format!("skipped: it succeeded {ago} ago"));
                Waited::Skipped
            }
            End::TokensExhausted => {
                self.voice.say("token exhausted; use another name");
                Waited::Wrong
            }
            // Nothing has run under it.
            End::Lost(_) => Waited::NeverHeld,
            End::GaveUp | End::Released | End::Unconfirmed => Waited::NotAcquired,
        }
    }

    /// Reports the holders: on a terminal after each change, otherwise once in the log.
    fn log_holders(&self, status: &LockStatus, said: &mut String) {
        if self.voice.is_quiet() {
            return;
        }
        // A contender with a minimum hold that was granted a free lock waits only for its own
        // write.
        let whom = wait_reason(status).filter(|whom| waits_for_others(status) && whom != said);
        let Some(whom) = whom else {
            return;
        };
        self.announced.store(true, Ordering::Relaxed);
        if self.voice.at_terminal() {
            self.voice.print(&format!("waiting: {whom}"));
        } else if said.is_empty() {
            info!(lock = %self.name, identity = %self.identity, whom, "waiting for the lock");
        }
        *said = whom;
    }
}

/// Waits until `bound`, or indefinitely without a bound.
async fn until(bound: Option<BootTime>) {
    match bound {
        Some(bound) => tokio::time::sleep(bound.since(clock::boot_now())).await,
        None => pending().await,
    }
}

/// Describes the holders and the position in the queue.
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

/// Names the first holders, and counts the others.
fn holders(ahead: &[Ahead], holding: usize) -> String {
    let holders = ahead.iter().filter(|ahead| ahead.holds);
    let names: Vec<_> = holders
        .take(HOLDERS_NAMED_MAX)
        .map(|holder| {
            let over = match holder.work_done {
                true => " (its work has ended, its place is kept)",
                false => "",
            };
            let since = match holder.since {
                WallMillis(0) => String::new(),
                at => format!(" since {}", date(at)),
            };
            let mode = holder.mode.as_str();
            format!("{} ({mode}){since}{over}", holder.identity)
        })
        .collect();
    if names.is_empty() {
        return "it is being handed over".to_owned();
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
    use super::*;
    use leasehold_core::election::{Claim, Session, Token};
    use leasehold_core::lock::Loss;
    use leasehold_mongodb::locker::{LockerOptions, NoLockSurfaces};
    use leasehold_mongodb::store::mongo::StoreOptions;

    #[test]
    fn a_wait_is_spent_once() {
        let seconds = Duration::from_secs;
        let of = |wait| WaitLimits {
            wait,
            store: seconds(18),
            silence: seconds(240),
        };
        let spent = |wait, times: &[u64]| {
            let mut patience = of(wait);
            times.iter().for_each(|time| patience.spend(seconds(*time)));
            patience.limit()
        };
        assert_eq!(spent(Some(seconds(10)), &[3, 4]), Some(seconds(3)));
        assert_eq!(spent(Some(seconds(10)), &[11]), Some(LEFT_MIN));
        assert_eq!(spent(None, &[11]), None);
        // Without a wait the store is still waited for.
        assert_eq!(spent(Some(Duration::ZERO), &[11]), Some(seconds(18)));
    }

    /// A machine that stops for a moment, for example, hides the moment at which the lock was held.
    #[tokio::test]
    async fn a_lock_that_is_lost_before_it_is_seen_to_be_held_ends_the_wait() {
        let name = ResourceName::new("x").expect("legal");
        let identity = Identity::new("me").expect("legal");
        let nowhere = StoreOptions::new("mongodb://127.0.0.1:1/", identity.clone());
        let mut locker = Locker::start(LockerOptions::new(nowhere, name.clone()), NoLockSurfaces)
            .expect("legal options");
        let watcher = Watcher {
            voice: JobMessages::new(
                name.clone(),
                false,
                Arc::new(leasehold_host::log::Stderr::open()),
            ),
            name,
            identity,
            announced: Arc::default(),
            retry_interval: Duration::from_secs(1),
            store: watch::channel(StoreState::default()).0,
        };
        let expired = Authority {
            token: Token::ZERO,
            valid_until: BootTime::default(),
        };
        let patience = WaitLimits {
            wait: None,
            store: Duration::MAX,
            silence: Duration::MAX,
        };
        let mut stops = Stops::register().expect("signals");
        for standing in [Standing::Lost(Loss::Deadline), Standing::Held(expired)] {
            let (_sender, status) = watch::channel(LockStatus {
                standing,
                since: BootTime::default(),
                claim: Claim::from_bytes([0; 16]),
                session: Session::from_bytes([0; 16]),
                provisional: false,
                slot: None,
                token_highest: Token::ZERO,
                store_reached: true,
            });
            let mut input = StandardInput::of(false);
            let waited = watcher.wait(&mut locker, status, &patience, &mut input, &mut stops);
            let waited = tokio::time::timeout(Duration::from_secs(20), waited).await;
            assert!(matches!(waited, Ok(Waited::NeverHeld)));
        }
    }
}
