//! A grant is another contender's write that lets a contender hold the lock. It names the entry's
//! revision. Provisional authority is counted from when the owner sent that revision, and lasts for
//! a share of the renew deadline. Other contenders wait for the same share of the lease duration.

use std::time::Duration;

use super::document::Entry;
use crate::election::{BootTime, Revision, Timings, Token};

/// Divisor of the renew deadline and of the lease duration. The share of the renew deadline bounds
/// provisional authority, and the share of the lease duration bounds the wait for an unconfirmed
/// entry. The bound on clock rates (I1) requires equal divisors.
pub(super) const GRANT_SHARE: u32 = 8;

/// Delay of a confirmation. Shorter work needs no confirmation, because its release comes first.
pub(super) const CONFIRM_AFTER: Duration = Duration::from_millis(250);

/// Lower limit of [`remaining_min`]. Even a loaded store confirms a grant in this time.
const REMAINING_MIN: Duration = Duration::from_millis(180);

/// A majority-acknowledged grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Grant {
    /// Token of the entry.
    pub token: Token,
    /// Revision of the entry when the grant was written.
    pub revision: Revision,
    /// Number of the granted slot, if the lock has slots.
    pub slot: Option<u32>,
}

impl Entry {
    /// Returns the grant that the owner has not confirmed, if any.
    pub fn unconfirmed_grant(&self) -> Option<Grant> {
        let token = self.token?;
        let revision = self.granted_revision.filter(|it| *it == self.revision)?;
        Some(Grant {
            token,
            revision,
            slot: self.slot,
        })
    }

    /// Returns true for a holder that has written since its grant.
    pub fn is_confirmed(&self) -> bool {
        self.token.is_some() && self.unconfirmed_grant().is_none()
    }
}

pub(super) fn provisional_until(sent: BootTime, timings: &Timings) -> BootTime {
    let (lease, deadline) = (timings.lease_duration(), timings.renew_deadline());
    sent + planted!(GrantWithoutRatio, lease, deadline) / GRANT_SHARE
}

/// Returns how much authority an unconfirmed grant must have left for the work to begin. With less
/// authority left, the work waits for the confirmation.
pub(super) fn remaining_min(timings: &Timings) -> Duration {
    (timings.renew_deadline() / GRANT_SHARE / 2).max(REMAINING_MIN)
}

pub(super) fn confirm_at(valid_until: BootTime, now: BootTime) -> BootTime {
    now + CONFIRM_AFTER.min(valid_until.since(now) / 4)
}
