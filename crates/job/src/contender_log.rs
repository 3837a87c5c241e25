//! The log of a contender for a lock: its acquisition, its loss, and what it notices.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tracing::{debug, error, info, warn};

use super::observation_cache::ObservationCache;
use super::store_answers::{StoreAnswers, seconds};
use leasehold_cli::UNSUPPORTED;
use leasehold_core::election::{BootTime, Identity, ResourceName, Token};
use leasehold_core::lock::{EntryState, LockNotice, Loss, QUEUE_MAX};
use leasehold_host::log::millis;
use leasehold_mongodb::calls::AnsweredCall;
use leasehold_mongodb::locker::{Finished, LockSurfaces};
use leasehold_mongodb::store::Failure;

/// Logs the events of a contender.
pub(super) struct ContenderLog {
    pub(super) lock: ResourceName,
    pub(super) identity: Identity,
    pub(super) cache: ObservationCache,
    /// True if the acquisition is logged at level info.
    pub(super) announced: Arc<AtomicBool>,
    pub(super) store: StoreAnswers,
}

impl LockSurfaces for ContenderLog {
    fn acquired(&mut self, (token, slot): (Token, Option<u32>), _: BootTime, waited: Duration) {
        let (lock, identity, token) = (&self.lock, &self.identity, token.get());
        let waited_ms = millis(waited);
        if self.announced.load(Ordering::Relaxed) {
            info!(%lock, %identity, token, slot, waited_ms, "lock acquired after {}", seconds(waited));
        } else {
            // At level info, this would be noise in the mail of a successful cron job.
            debug!(%lock, %identity, token, slot, waited_ms, "lock acquired");
        }
    }

    fn finished(&mut self, finished: &Finished) {
        self.cache.keep(finished);
    }

    fn lost(&mut self, loss: Loss) {
        let why = self.store.failed_write();
        let why = why.as_ref().map(tracing::field::display);
        warn!(lock = %self.lock, reason = loss.as_str(), why, "lost the lock");
    }

    fn notice(&mut self, notice: &LockNotice) {
        self.store.notice(notice);
        let lock = &self.lock;
        match notice {
            LockNotice::Evicted {
                identity,
                token,
                state: EntryState::Kept,
                ..
            } => info!(
                %lock, %identity, token = token.map(Token::get),
                "removed an ended holder whose minimum hold has passed"
            ),
            LockNotice::Evicted {
                identity,
                token,
                state,
                silent,
            } => warn!(
                %lock, %identity, token = token.map(Token::get), silent_ms = millis(*silent),
                state = state.as_str(),
                "removed an expired {}", match state {
                    EntryState::Held | EntryState::Kept => "holder",
                    EntryState::Granted | EntryState::Waiting => "waiter",
                }
            ),
            LockNotice::PlaceLost => {
                warn!(%lock, "lost the place in the queue, rejoining at the end")
            }
            LockNotice::QueueFull => {
                warn!(%lock, "queue full ({QUEUE_MAX}), retrying")
            }
            LockNotice::InvalidLeaseDuration { identity, millis } => warn!(
                %lock, %identity, lease_duration_ms = millis,
                "entry declares an out-of-range lease duration; treating it as 1h"
            ),
            LockNotice::Duplicate { session } => warn!(
                %lock, %session, "another process renews this entry (cloned machine or edited document)"
            ),
            LockNotice::StoreRolledBack { seen, found, wait } => {
                warn!(
                    %lock, token_seen = seen.get(), token_found = found.map(Token::get),
                    wait_ms = millis(*wait), "lock document is older than before (restored or rolled back)"
                );
            }
            LockNotice::TokensExhausted => warn!(%lock, "token exhausted"),
        }
    }

    fn answered(&mut self, answered: &AnsweredCall) {
        self.store.answered(answered);
    }

    fn lookalike(&mut self, product: &str) {
        error!(lock = %self.lock, product, "{UNSUPPORTED}");
    }

    fn watching(&mut self, failure: Option<&Failure>) {
        if let Some(failure) = failure {
            debug!(lock = %self.lock, %failure, "no change stream, polling");
        }
    }
}
