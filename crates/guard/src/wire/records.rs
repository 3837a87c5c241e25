//! The content of the records between daemon, guard and shim.

use serde::{Deserialize, Serialize};

use crate::claim_share::ClaimPlace;
use crate::progress::CommandEnd;
use leasehold_core::deadline_policy::{DesiredState, PolicyOptions, Terms};
use leasehold_core::election::BootTime;

/// The record of the daemon: the complete desired state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ToGuard {
    pub(crate) desired: DesiredState,
    /// A signal to relay; new if `relays` has changed.
    pub(crate) relay: i32,
    pub(crate) relays: u32,
}

impl ToGuard {
    /// Returns the state of a new CMD under these deadlines.
    pub(crate) fn new(terms: Terms) -> Self {
        Self {
            desired: DesiredState::run(terms),
            relay: 0,
            relays: 0,
        }
    }
}

/// The first record to a guard; sent with standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GuardBegin {
    /// True if the daemon has a controlling terminal, so the guard stays in its session.
    pub(crate) on_terminal: bool,
}

/// The second record to a guard, when there is authority; sent with the exec spec, the claim lock and a
/// descriptor to keep open; the last two are optional.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GuardStart {
    pub(crate) policy: PolicyOptions,
    /// The process group that CMD takes the terminal over from; 0 if it does not.
    pub(crate) foreground: i32,
    /// The guard's place in the claim file, if the claim lock was sent.
    pub(crate) place: Option<ClaimPlace>,
}

/// The only record to a shim; sent with standard input, the exec spec and, optionally, the claim
/// lock. The shim answers with a [`CommandEnd`] if it does not become CMD; otherwise the exec closes
/// the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShimStart {
    pub(crate) guard: i32,
    pub(crate) valid_until: BootTime,
    pub(crate) foreground: i32,
    pub(crate) place: Option<ClaimPlace>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum CommandStage {
    Starting,
    Running,
    LeaderEnded,
    Gone,
}

/// The record of the guard: everything that it knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GuardReport {
    pub(crate) stage: CommandStage,
    /// 0 before there is a leader.
    pub(crate) leader: i32,
    /// The end of CMD's leader, as reported by the kernel or the shim.
    pub(crate) end: CommandEnd,
    /// True if CMD's leader ended after it had been asked to end or killed.
    pub(crate) by_us: bool,
    /// True if SIGKILL was sent, so the guard has enforced its part of the deadline.
    pub(crate) killed: bool,
    /// True while descendants of a CMD that has exited may end by themselves, and afterwards if they
    /// did.
    pub(crate) lingers: bool,
    /// The signal that stopped (not ended) CMD; 0 while CMD runs.
    pub(crate) stopped: i32,
}
