use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tracing::{Level, debug, enabled, error, info, warn};

use super::messages::JobMessages;
use super::observation_cache::ObservationCache;
use leasehold_cli::UNSUPPORTED;
use leasehold_clock as clock;
use leasehold_core::election::{BootTime, Identity, ResourceName, Token};
use leasehold_core::lock::{EntryState, LockNotice, Loss, QUEUE_MAX};
use leasehold_host::duration::shown;
use leasehold_host::log::{ErrorThrottle, millis};
use leasehold_mongodb::calls::AnsweredCall;
use leasehold_mongodb::locker::{Finished, LockSurfaces, StoreHealth};
use leasehold_mongodb::store::mongo::lock::ClaimHint;
use leasehold_mongodb::store::{RetryPolicy, StoreEvent};

pub(super) struct WaitReports {
    /// True if the acquisition is logged at level info: with `--verbose`, or after a reported wait.
    pub(super) announced: AtomicBool,
    /// True once the command has reported why it gives up; later failures are not logged.
    pub(super) given_up: AtomicBool,
    /// After the store went back, the time at which the contender joins again, in nanoseconds of
    /// `BootTime`.
    pub(super) joins_again_at: AtomicU64,
}

pub(super) struct ContenderLog {
    pub(super) lock: ResourceName,
    pub(super) identity: Identity,
    pub(super) retry_interval: Duration,
    /// Time limit for retries of the first call.
    pub(super) patience: Duration,
    pub(super) messages: JobMessages,
    pub(super) cache: ObservationCache,
    pub(super) reported: Arc<WaitReports>,
    pub(super) reads: ErrorThrottle,
    pub(super) writes: ErrorThrottle,
    /// The kind and code of the last failure that was printed with its remedy.
    pub(super) printed: Option<(&'static str, Option<i32>)>,
}

impl LockSurfaces for ContenderLog {
    fn acquired(&mut self, (token, slot): (Token, Option<u32>), _: BootTime, waited: Duration) {
        let (lock, identity, token) = (&self.lock, &self.identity, token.get());
        let waited_ms = millis(waited);
        let announced = self.reported.announced.load(Ordering::Relaxed);
        if announced && self.messages.is_plain() {
            self.messages.acquired(token, slot, waited);
        } else if announced {
            info!(%lock, %identity, token, slot, waited_ms, "lock acquired after {}", shown(Duration::from_millis(waited_ms)));
        } else {
            // At level info, this line would be noise in the mail of a successful cron job.
            debug!(%lock, %identity, token, slot, waited_ms, "lock acquired");
        }
    }

    fn finished(&mut self, finished: &Finished) {
        self.cache.keep(finished);
    }

    fn lost(&mut self, loss: Loss, health: &StoreHealth) {
        let why = health.failed_write().map(tracing::field::display);
        warn!(lock = %self.lock, reason = loss.as_str(), why, "lost the lock");
    }

    fn notice(&mut self, notice: &LockNotice) {
        let lock = &self.lock;
        match notice {
            LockNotice::Evicted {
                identity,
                token,
                state,
                silent,
            } if self.messages.is_plain() => {
                let kept = *state == EntryState::Kept;
                let token = token.map(|token| format!(" (token {})", token.get()));
                let who = format!("{identity}{}", token.unwrap_or_default());
                if kept && enabled!(Level::INFO) {
                    self.messages
                        .print(&format!("removed {}: {who}", evicted(*state)));
                } else if !kept && enabled!(Level::WARN) {
                    let silent = shown(Duration::from_millis(millis(*silent)));
                    self.messages.print(&format!(
                        "removed {}: {who}, silent for {silent}",
                        evicted(*state)
                    ));
                }
            }
            LockNotice::Evicted {
                identity,
                token,
                state: state @ EntryState::Kept,
                ..
            } => info!(
                %lock, %identity, token = token.map(Token::get),
                "removed {}", evicted(*state)
            ),
            LockNotice::Evicted {
                identity,
                token,
                state,
                silent,
            } => warn!(
                %lock, %identity, token = token.map(Token::get), silent_ms = millis(*silent),
                state = state.as_str(),
                "removed {}", evicted(*state)
            ),
            LockNotice::PlaceLost => {
                warn!(%lock, "lost the place in the queue; rejoining at the end")
            }
            LockNotice::QueueFull => warn!(%lock, "queue full ({QUEUE_MAX}), retrying"),
            LockNotice::InvalidLeaseDuration { identity, millis } => warn!(
                %lock, %identity, lease_duration_ms = millis,
                "entry declares an out-of-range lease duration; treating it as 1h"
            ),
            LockNotice::Duplicate { session } => warn!(
                %lock, %session, "another process renews this entry (cloned machine or edited document)"
            ),
            LockNotice::StoreRolledBack { seen, found, wait } => {
                let again = (clock::boot_now() + *wait).as_nanos();
                self.reported.joins_again_at.store(again, Ordering::Relaxed);
                warn!(
                    %lock, token_seen = seen.get(), token_found = found.map(Token::get),
                    wait_ms = millis(*wait), "lock document is older than last seen (restored or rolled back)"
                );
            }
            LockNotice::TokensExhausted => warn!(%lock, "token exhausted"),
        }
    }

    /// Logs the first failure, further failures at growing intervals, and the next success.
    fn answered(&mut self, answered: &AnsweredCall, health: &StoreHealth) {
        let (operation, outcome) = (answered.operation, answered.outcome);
        if answered.late || self.reported.given_up.load(Ordering::Relaxed) {
            return;
        }
        let now = clock::boot_now();
        let (lock, identity) = (&self.lock, &self.identity);
        let errors = match operation {
            "read" => &mut self.reads,
            _ => &mut self.writes,
        };
        match &answered.failure {
            Some(failure) => {
                let due = errors.failed_after(answered.elapsed, failure.kind, failure.code, now);
                if let Some((failing_for, failures)) = due {
                    // A contender that has no entry yet gives up if MongoDB refuses its call.
                    let begins = ["try", "join", "create", "read"].contains(&operation);
                    let interval = shown(self.retry_interval);
                    let retry = match failure.retry {
                        RetryPolicy::Reconfigure if begins => String::new(),
                        _ if begins && operation != "read" => {
                            format!(
                                ", retrying in {interval} for up to {}",
                                shown(self.patience)
                            )
                        }
                        _ => format!(", retrying in {interval}"),
                    };
                    let what = match operation {
                        "try" | "join" => "call",
                        "sweep" => "eviction",
                        other => other,
                    };
                    let what = format!("MongoDB {what} failed (attempt {failures}){retry}");
                    if self.messages.is_plain() && enabled!(Level::WARN) {
                        let kind = Some((failure.kind, failure.code));
                        let joins = begins && operation != "read";
                        if joins && failure.retry == RetryPolicy::Reconfigure {
                            // Prints nothing here, because the contender gives up and then reports
                            // the failure.
                        } else if self.printed == kind && failures > 1 {
                            let lasts = shown(Duration::from_millis(millis(failing_for)));
                            let of = match joins {
                                true => format!("{lasts} of {}", shown(self.patience)),
                                false => lasts,
                            };
                            let still = match failure.kind {
                                absent if absent.starts_with("no ") => absent.to_owned(),
                                kind => format!("failing: {kind}"),
                            };
                            self.messages
                                .print(&format!("still {still} (attempt {failures}, {of})"));
                        } else {
                            self.messages.print(&format!("{what}: {failure}"));
                            self.printed = kind;
                        }
                        return;
                    }
                    warn!(
                        %lock, %identity, operation, outcome, why = %failure, failures,
                        failing_for_ms = (failures > 1).then_some(millis(failing_for)), "{what}"
                    );
                }
            }
            None if health.is_unchanged_by(answered) => {}
            None => {
                let over = errors.over(now);
                // A server that acknowledges a write also answers reads.
                if let Some((lasted, failures)) = over.or(self.reads.over(now)) {
                    self.printed = None;
                    if self.messages.is_plain() && enabled!(Level::INFO) {
                        let lasted = shown(lasted);
                        self.messages
                            .print(&format!("MongoDB answers again after {lasted}"));
                        return;
                    }
                    let after_ms = millis(lasted);
                    info!(%lock, %identity, operation, after_ms, failures, "MongoDB answers again");
                }
            }
        }
    }

    fn store_event(&mut self, event: &StoreEvent<ClaimHint>) {
        let lock = &self.lock;
        match event {
            StoreEvent::Lookalike(product) => error!(%lock, product, "{UNSUPPORTED}"),
            StoreEvent::WatchFailed(failure) => {
                debug!(%lock, %failure, "no change stream, polling");
            }
            _ => {}
        }
    }
}

fn evicted(state: EntryState) -> &'static str {
    match state {
        EntryState::Kept => "an ended holder whose minimum hold has passed",
        EntryState::Held => "an expired holder",
        EntryState::Granted | EntryState::Waiting => "an expired waiter",
    }
}
