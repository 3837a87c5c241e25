//! Performs the IO of an election: carries out its effects, and reports to the program's surfaces.

use std::time::Duration;

use tokio::sync::{oneshot, watch};

use crate::calls::AnsweredCall;
use crate::event_loop::{CallsInFlight, Host, state_machine};
use crate::store::{Store, StoreEvent};
use leasehold_core::election::{
    BootTime, CallId, Claim, Effect, Election, Found, Input, Notice, Order, Outcome, Randomness,
    Status, Token, Transition, Watch,
};

/// Callbacks from a candidate, made after the status channel was updated. Safety depends on the
/// callbacks that have no default.
pub trait Surfaces: Send + 'static {
    /// Returns a receiver that yields `true` once every file shows the newest status. It yields
    /// `false` if a file with a deadline can be neither rewritten nor removed.
    fn flush(&mut self) -> oneshot::Receiver<bool>;
    /// Returns a receiver that completes once the pod's label no longer says leader, or after a
    /// maximum wait; `None` if the pod has no label. Called after [`Surfaces::flush`].
    fn label_demoted(&mut self) -> Option<oneshot::Receiver<()>> {
        None
    }
    /// Sets the desired state of the supervised workload. Not called without supervision.
    fn workload(&mut self, order: Order);
    /// Saves values for the next process on this machine.
    fn remember(&mut self, claim: Option<Claim>, token: Token, lease_longest: Duration);
    /// The role changed.
    fn transition(&mut self, _: &Transition) {}
    /// An event that humans may want to see.
    fn notice(&mut self, _: &Notice) {}
    /// The number of store calls in flight, reported before each wait of the loop.
    fn calls_in_flight(&mut self, _: usize) {}
    /// A store call was answered.
    fn answered(&mut self, _: &AnsweredCall) {}
    /// The store reported an event. The candidate has not handled the event yet.
    fn store_event(&mut self, _: &StoreEvent) {}
}

/// Ignores all events. For programs that only query the [`Elector`](super::Elector).
impl Surfaces for () {
    fn flush(&mut self) -> oneshot::Receiver<bool> {
        let (answer, receiver) = oneshot::channel();
        // Cannot fail, because this function owns the receiver.
        let _ = answer.send(true);
        receiver
    }

    fn workload(&mut self, _: Order) {}

    fn remember(&mut self, _: Option<Claim>, _: Token, _: Duration) {}
}

state_machine!(Election, Input, Effect, Status, Found, abandoned: Shutdown);

pub(super) struct ElectionHost<S, F> {
    pub(super) store: S,
    pub(super) status: watch::Receiver<Status>,
    pub(super) surfaces: F,
    /// The answer of [`Surfaces::flush`] that a step-down waits for.
    pub(super) demoting: Option<oneshot::Receiver<bool>>,
    /// The answer of [`Surfaces::label_demoted`] that a step-down waits for.
    pub(super) label: Option<oneshot::Receiver<()>>,
}

impl<S: Store, F: Surfaces> Host for ElectionHost<S, F> {
    type Machine = Election;
    type Hint = Watch;
    type End = ();
    /// True if the store no longer contains a claim of the candidate.
    type Result = bool;

    fn carry_out(&mut self, effect: Effect, calls: &mut CallsInFlight<Self>) -> Option<()> {
        match effect {
            Effect::Call { id, operation } => {
                let (store, name) = (self.store.clone(), operation.as_str());
                let server = store.server();
                calls.perform(
                    id,
                    name,
                    server,
                    async move { store.perform(operation).await },
                );
            }
            Effect::ReopenStream => self.store.reopen_stream(),
            Effect::Demote => {
                self.demoting = Some(self.surfaces.flush());
                self.label = self.surfaces.label_demoted();
            }
            Effect::Workload(order) => self.surfaces.workload(order),
            Effect::Remember {
                claim,
                token,
                lease_longest,
            } => self.surfaces.remember(claim, token, lease_longest),
            Effect::Transition(transition) => self.surfaces.transition(&transition),
            Effect::Notice(notice) => self.surfaces.notice(&notice),
            Effect::Exit => return Some(()),
        }
        None
    }

    fn calls_in_flight(&mut self, number: usize) {
        self.surfaces.calls_in_flight(number);
    }

    fn answered(&mut self, answered: &AnsweredCall) {
        self.surfaces.answered(answered);
    }

    fn news(&mut self, news: StoreEvent) -> Option<Input> {
        self.surfaces.store_event(&news);
        match news {
            StoreEvent::PrimaryChanged => Some(Input::PrimaryChanged),
            StoreEvent::Watch(watch) => Some(Input::Watch(watch)),
            StoreEvent::RollCalled => {
                self.store.answer_roll_call(self.status.clone());
                None
            }
            _ => None,
        }
    }

    fn received(&mut self, input: &Input) {
        match input {
            Input::Health { healthy } => self.store.set_healthy(*healthy),
            Input::Reconfigure(tunables) => self.store.set_timings(tunables.timings),
            _ => {}
        }
    }

    async fn finish(self, election: &Election, (): ()) -> bool {
        !election.is_left_to_expire()
    }

    async fn event(&mut self) -> Input {
        loop {
            tokio::select! {
                biased;
                _ = answer(&mut self.label) => {
                    self.label = None;
                    if self.demoting.is_none() {
                        return Input::LabelDemoted;
                    }
                }
                shown = answer(&mut self.demoting) => {
                    self.demoting = None;
                    return Input::Demoted {
                        shown: shown.unwrap_or(false),
                        label_pending: self.label.is_some(),
                    };
                }
            }
        }
    }
}

/// Waits for the answer; indefinitely if no answer is expected.
async fn answer<T>(
    expected: &mut Option<oneshot::Receiver<T>>,
) -> Result<T, oneshot::error::RecvError> {
    match expected {
        Some(receiver) => receiver.await,
        None => std::future::pending().await,
    }
}
