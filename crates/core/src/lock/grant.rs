//! Grants: how another contender's write lets a contender hold the lock.
//!
//! The grant names the revision that it found. Only the owner writes its revision, so the owner
//! sent it before the grant, and counts its provisional authority from there. It is safe for the
//! same reason as a renewal: others evict an unconfirmed entry no sooner than a share of its lease
//! duration after they saw the grant, and the owner has the same share of its renew deadline from
//! an instant before it.

use std::time::Duration;

use super::document::Entry;
use crate::election::{BootTime, Revision, Timings, Token};

/// Others evict an unconfirmed entry after this fraction of the lease duration; provisional
/// authority lasts this fraction of the renew deadline. One divisor serves both, since their ratio
/// bounds the difference of clock rates (I1).
pub(super) const GRANT_SHARE: u32 = 8;

/// Delay of the confirmation. Shorter work needs no confirmation: its release follows the grant.
pub(super) const CONFIRM_AFTER: Duration = Duration::from_millis(250);

/// Minimum time that a grant must leave for its confirmation, however short the lease. A store or a
/// machine under load answers a write within it.
const REMAINING_MIN: Duration = Duration::from_millis(180);

/// A majority-acknowledged grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Grant {
    /// Token of the entry.
    pub token: Token,
    /// Revision that the grant found in the entry.
    pub revision: Revision,
    /// Number of the granted slot, if the lock has slots.
    pub slot: Option<u32>,
}

impl Entry {
    /// Returns the grant that the owner has not confirmed; `None` for an entry that waits or holds,
    /// or that an older version granted.
    pub fn unconfirmed_grant(&self) -> Option<Grant> {
        let token = self.token?;
        let revision = self.granted_revision.filter(|it| *it == self.revision)?;
        Some(Grant {
            token,
            revision,
            slot: self.slot,
        })
    }

    /// Returns true for an entry among the holders that its owner has confirmed. Each write of the
    /// owner changes the revision, and so confirms.
    pub fn is_confirmed(&self) -> bool {
        self.token.is_some() && self.unconfirmed_grant().is_none()
    }
}

/// Returns the end of the provisional authority if the granted revision was sent at `sent`.
pub(super) fn provisional_until(sent: BootTime, timings: &Timings) -> BootTime {
    let share = match planted!(GrantWithoutRatio) {
        true => timings.lease_duration() / GRANT_SHARE,
        false => timings.renew_deadline() / GRANT_SHARE,
    };
    sent + share
}

/// Returns the time that a grant must leave for its confirmation. With less, the confirmation comes
/// first, because losing a lock costs more than acquiring it a round trip later.
pub(super) fn remaining_min(timings: &Timings) -> Duration {
    (timings.renew_deadline() / GRANT_SHARE / 2).max(REMAINING_MIN)
}

/// Returns when to confirm a grant whose authority ends at `valid_until`.
pub(super) fn confirm_at(valid_until: BootTime, now: BootTime) -> BootTime {
    now + CONFIRM_AFTER.min(valid_until.since(now) / 4)
}
