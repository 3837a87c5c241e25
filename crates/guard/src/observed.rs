//! The policy of a guard, with an observer for traces.

use std::ops::Deref;

use leasehold_core::deadline_policy::{Action, DeadlinePolicy, Input, Leftovers, StopScope, Terms};
use leasehold_core::election::BootTime;

use super::claim_share::ClaimPlace;

/// A command that a guard is about to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watched {
    /// The first deadlines.
    pub terms: Terms,
    /// The signal that asks the command to stop.
    pub stop_signal: i32,
    /// Recipients of that signal.
    pub stop_scope: StopScope,
    /// Times of descendants that outlive the command's first process.
    pub leftovers: Leftovers,
    /// The guard's place in the claim file, if it has one.
    pub place: Option<ClaimPlace>,
    /// Process id of the process that gives the orders.
    pub daemon: u32,
}

/// Receives everything that the policy of a guard is given, and its decisions. It is called before
/// they are carried out.
pub trait PolicyObserver {
    /// The policy has handled an input.
    fn handled(&mut self, now: BootTime, input: Input, action: Option<Action>);
}

/// A policy and its observer.
pub(crate) struct ObservedPolicy {
    policy: DeadlinePolicy,
    observer: Option<Box<dyn PolicyObserver>>,
}

impl ObservedPolicy {
    pub(crate) fn new(watched: &Watched, observer: Option<Box<dyn PolicyObserver>>) -> Self {
        let policy = DeadlinePolicy::new(watched.terms, watched.stop_signal);
        Self {
            policy: policy
                .with_leftovers(watched.leftovers)
                .with_scope(watched.stop_scope),
            observer,
        }
    }

    /// Gives the policy an input, and returns the action to take now.
    pub(crate) fn handle(&mut self, now: BootTime, input: Input) -> Option<Action> {
        self.policy.handle(now, input);
        let action = self.policy.next_action();
        if let Some(observer) = &mut self.observer {
            observer.handled(now, input, action);
        }
        action
    }
}

impl Deref for ObservedPolicy {
    type Target = DeadlinePolicy;

    fn deref(&self) -> &DeadlinePolicy {
        &self.policy
    }
}
