//! Performs the IO of a contender: carries out its effects, and reports to the program's surfaces.

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{Finished, LockSurfaces, StoreHealth};
use crate::calls::AnsweredCall;
use crate::event_loop::{CallsInFlight, Host, state_machine};
use crate::store::StoreEvent;
use crate::store::mongo::lock::{ClaimHint, MongoLockStore};
use leasehold_core::election::{BootTime, CallId, Claim, Outcome, Randomness};
use leasehold_core::lock::{End, FoundLock, LockContender, LockEffect, LockInput, LockStatus};

state_machine!(LockContender, LockInput, LockEffect, LockStatus, FoundLock, abandoned: Abandoned);

pub(super) struct LockHost<F> {
    pub(super) store: MongoLockStore,
    pub(super) surfaces: F,
    pub(super) health: watch::Sender<StoreHealth>,
    pub(super) watching: Option<(Claim, JoinSet<()>)>,
}

impl<F: LockSurfaces> Host for LockHost<F> {
    type Machine = LockContender;
    type Hint = ClaimHint;
    type End = End;
    type Result = Finished;

    fn carry_out(&mut self, effect: LockEffect, calls: &mut CallsInFlight<Self>) -> Option<End> {
        match effect {
            LockEffect::Call { id, operation } => {
                let (store, name) = (self.store.clone(), operation.as_str());
                let server = store.server();
                calls.perform(
                    id,
                    name,
                    server,
                    async move { store.perform(operation).await },
                );
            }
            LockEffect::Watch(claim) => {
                self.watching = claim.map(|claim| {
                    let mut task = JoinSet::new();
                    task.spawn(self.store.clone().watch(claim));
                    (claim, task)
                });
            }
            LockEffect::Acquired {
                token,
                slot,
                valid_until,
                waited,
            } => self.surfaces.acquired((token, slot), valid_until, waited),
            LockEffect::Lost(loss) => self.surfaces.lost(loss, &self.health.borrow()),
            LockEffect::Notice(notice) => {
                let now = leasehold_clock::boot_now();
                self.health.send_modify(|it| it.notice(&notice, now));
                self.surfaces.notice(&notice);
            }
            LockEffect::Exit(end) => return Some(end),
        }
        None
    }

    fn answered(&mut self, answered: &AnsweredCall) {
        self.surfaces.answered(answered, &self.health.borrow());
        let now = leasehold_clock::boot_now();
        self.health.send_modify(|it| it.answered(answered, now));
    }

    fn news(&mut self, news: StoreEvent<ClaimHint>) -> Option<LockInput> {
        self.surfaces.store_event(&news);
        match news {
            StoreEvent::PrimaryChanged => Some(LockInput::PrimaryChanged),
            StoreEvent::Watch(ClaimHint { claim, hint }) => {
                // A stream that is no longer followed may still deliver events.
                let watched = self.watching.as_ref().map(|(claim, _)| *claim);
                (watched == Some(claim)).then_some(LockInput::Hint(hint))
            }
            _ => None,
        }
    }

    async fn finish(mut self, contender: &LockContender, end: End) -> Finished {
        let finished = Finished {
            end,
            token_highest: contender.token_highest(),
            went_back: contender.went_back(),
            observations: contender.observations().clone(),
        };
        self.surfaces.finished(&finished);
        self.watching = None;
        // In the background, so that a program's exit does not wait for the client's last commands.
        let store = self.store;
        tokio::spawn(async move { store.shut_down().await });
        finished
    }
}
