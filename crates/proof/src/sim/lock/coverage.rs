use std::fmt;

use super::faults::Fault;
use crate::lock::{End, EntryState, LockEffect, LockNotice, LockOutcome};
use crate::proof::sim::coverage::{Answer, Case, closed, pairs};
use crate::proof::sim::faults::Kind as _;

/// The names of the operations that contenders send. Only operators break a lock.
const OPERATIONS: &[&str] = &[
    "create", "join", "try", "renew", "keep", "leave", "sweep", "read",
];

closed! {
    Path {
        Acquired => "the lock is acquired",
        Granted => "the lock is held by a grant before it is confirmed",
        Unconfirmed => "the lock is released before the grant is confirmed",
        Lost => "a held lock is lost",
        Ended => "a contender ends",
        PlaceLost => "a place in the queue is lost",
        Evicted => "an expired entry is evicted",
        Skipped => "work is skipped because it succeeded recently",
        Kept => "an entry is kept for its minimum hold and then removed",
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Hit {
    Fault(Fault),
    Call(&'static str, Answer),
    Path(Path),
}

impl From<Fault> for Hit {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<&LockOutcome> for Answer {
    fn from(outcome: &LockOutcome) -> Self {
        match outcome {
            LockOutcome::Applied(_) => Self::Applied,
            LockOutcome::Rejected => Self::Rejected,
            LockOutcome::Failed => Self::Failed,
            LockOutcome::PrimaryOnly | LockOutcome::Unknown => Self::Unknown,
        }
    }
}

impl Path {
    pub(super) fn behind(effect: &LockEffect) -> Option<Self> {
        match effect {
            LockEffect::Acquired { .. } => Some(Self::Acquired),
            LockEffect::Lost(_) => Some(Self::Lost),
            LockEffect::Exit(End::Skipped { .. }) => Some(Self::Skipped),
            LockEffect::Exit(_) => Some(Self::Ended),
            LockEffect::Notice(LockNotice::PlaceLost) => Some(Self::PlaceLost),
            LockEffect::Notice(LockNotice::Evicted {
                state: EntryState::Kept,
                ..
            }) => Some(Self::Kept),
            LockEffect::Notice(LockNotice::Evicted { .. }) => Some(Self::Evicted),
            LockEffect::Notice(_) | LockEffect::Call { .. } | LockEffect::Watch(_) => None,
        }
    }
}

impl Case for Hit {
    fn all() -> Vec<Self> {
        let calls = pairs(OPERATIONS, Answer::ALL, Self::Call);
        let faults = Fault::ALL.iter().map(|it| Self::Fault(*it));
        let paths = Path::ALL.iter().map(|it| Self::Path(*it));
        faults.chain(calls).chain(paths).collect()
    }

    fn excused(self) -> Option<&'static str> {
        match self {
            Self::Call("read", Answer::Rejected) => Some("a read has no filter"),
            Self::Fault(_) | Self::Call(..) | Self::Path(_) => None,
        }
    }
}

impl fmt::Display for Hit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fault(fault) => write!(f, "fault      {fault:?}"),
            Self::Call(operation, answer) => {
                write!(f, "operation  {operation}: {}", answer.words())
            }
            Self::Path(path) => write!(f, "path       {}", path.words()),
        }
    }
}
