//! The observer of a guard, for traces.

use leasehold_core::deadline_policy::{Action, PolicyInput, PolicyOptions};
use leasehold_core::election::BootTime;

use super::claim_share::ClaimPlace;

/// A command that a guard is about to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watched {
    /// The options of its policy.
    pub policy: PolicyOptions,
    /// The guard's place in the claim file, if it has one.
    pub place: Option<ClaimPlace>,
    /// Process id of the process that gives the orders.
    pub daemon: u32,
}

/// Receives everything that the policy of a guard is given, and its decisions. It is called before
/// they are carried out.
pub trait PolicyObserver {
    /// The policy has handled an input.
    fn handled(&mut self, now: BootTime, input: PolicyInput, action: Option<Action>);
}
