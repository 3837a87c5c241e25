//! The IO of a contender for a lock: carries out its effects and reports to the program's surfaces.

use std::borrow::Cow;
use std::io;

use tokio::task::JoinHandle;

use super::{Finished, LockSurfaces};
use crate::calls::AnsweredCall;
use crate::event_loop::{CallsInFlight, Host, state_machine};
use crate::store::StoreEvent;
use crate::store::mongo::lock::{ClaimHint, MongoLockStore};
use leasehold_core::election::{BootTime, CallId, Claim, Randomness};
use leasehold_core::lock::{
    End, Hint, LockContender, LockEffect, LockInput, LockOutcome, LockStatus,
};

state_machine!(LockContender, LockInput, LockEffect, LockStatus, LockOutcome, abandoned: Abandoned, status: Cow::Owned);

/// The store and the surfaces of a contender.
pub(super) struct LockHost<F> {
    store: MongoLockStore,
    surfaces: F,
    /// The followed claim and the task that follows it, which makes no calls.
    watching: Option<(Claim, JoinHandle<()>)>,
}

impl<F> LockHost<F> {
    pub(super) fn new(store: MongoLockStore, surfaces: F) -> Self {
        Self {
            store,
            surfaces,
            watching: None,
        }
    }

    /// Follows this claim instead of the previous one.
    fn watch(&mut self, claim: Option<Claim>) {
        if let Some((_, task)) = self.watching.take() {
            task.abort();
        }
        let store = self.store.clone();
        self.watching = claim.map(|claim| (claim, tokio::spawn(store.watch(claim))));
    }
}

impl<F: LockSurfaces> Host for LockHost<F> {
    type Machine = LockContender;
    type Hint = ClaimHint;
    type End = End;
    type Result = Finished;

    fn published(&mut self, _: &LockStatus) {}

    fn carry_out(&mut self, effect: LockEffect, calls: &mut CallsInFlight<Self>) -> Option<End> {
        match effect {
            LockEffect::Call { id, operation } => {
                calls.perform(id, operation.as_str(), self.store.clone(), operation);
            }
            LockEffect::Watch(claim) => self.watch(claim),
            LockEffect::Acquired {
                token,
                slot,
                valid_until,
                waited,
            } => self.surfaces.acquired((token, slot), valid_until, waited),
            LockEffect::Lost(loss) => self.surfaces.lost(loss),
            LockEffect::Notice(notice) => self.surfaces.notice(&notice),
            LockEffect::Exit(end) => return Some(end),
        }
        None
    }

    fn answered(&mut self, answered: &AnsweredCall) {
        self.surfaces.answered(answered);
    }

    fn news(&mut self, news: StoreEvent<ClaimHint>) -> Option<LockInput> {
        match news {
            StoreEvent::PrimaryChanged => return Some(LockInput::PrimaryChanged),
            StoreEvent::Watch(ClaimHint { claim, hint }) => {
                // Late events of a stream that was given up are ignored.
                let watched = self.watching.as_ref().map(|(claim, _)| *claim);
                if watched == Some(claim) {
                    if matches!(hint, Hint::Opened { .. }) {
                        self.surfaces.watching(None);
                    }
                    return Some(LockInput::Hint(hint));
                }
            }
            StoreEvent::WatchFailed(failure) => self.surfaces.watching(Some(&failure)),
            StoreEvent::Lookalike(product) => self.surfaces.lookalike(product),
            StoreEvent::HintsFailed(_)
            | StoreEvent::RequestIgnored(_)
            | StoreEvent::Connected(_)
            | StoreEvent::Failover(_) => {}
        }
        None
    }

    async fn finish(
        &mut self,
        contender: &LockContender,
        end: io::Result<End>,
    ) -> io::Result<Finished> {
        let finished = end.map(|end| Finished {
            end,
            token_highest: contender.token_highest(),
            observations: contender.observations().clone(),
        });
        if let Ok(finished) = &finished {
            self.surfaces.finished(finished);
        }
        self.watch(None);
        self.store.shut_down().await;
        finished
    }
}

impl<F> Drop for LockHost<F> {
    fn drop(&mut self) {
        if let Some((_, task)) = &self.watching {
            task.abort();
        }
    }
}
