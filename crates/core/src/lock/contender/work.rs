//! The work under the lock: for how long it keeps the place at least, and whether it succeeded.

use std::time::Duration;

use crate::election::BootTime;
use crate::lock::input::MinHold;
use crate::lock::success::{OncePer, WorkKey};

#[derive(Debug, Clone, Default)]
pub(super) struct LockedWork {
    /// End of the minimum hold, once the lock was acquired with one.
    keeps_until: Option<BootTime>,
    succeeded: bool,
}

impl LockedWork {
    pub(super) fn begin(&mut self, min_hold: MinHold, now: BootTime) {
        self.keeps_until = (min_hold != MinHold::NONE).then(|| now + min_hold.get());
    }

    /// Records that no work began, so that the place is not kept.
    pub(super) fn never_began(&mut self) {
        self.keeps_until = None;
    }

    pub(super) fn succeed(&mut self) {
        self.succeeded = true;
    }

    /// Returns the rest of the minimum hold to declare with a renewal.
    pub(super) fn rest(&self, now: BootTime) -> Option<Duration> {
        self.keeps_until.map(|until| until.since(now))
    }

    pub(super) fn keeps_place(&self) -> bool {
        self.keeps_until.is_some()
    }

    /// Returns how long the place stays taken although the work has ended.
    pub(super) fn kept_for(&self, now: BootTime) -> Option<Duration> {
        let until = self.keeps_until.filter(|until| *until > now)?;
        Some(until.since(now))
    }

    /// Returns the key to record with the end of the claim, if any.
    pub(super) fn success(&self, once_per: Option<&OncePer>) -> Option<WorkKey> {
        once_per.filter(|_| self.succeeded).map(|it| it.key.clone())
    }

    #[cfg(proof)]
    pub(super) fn compare(&self, form: &mut impl super::Form) {
        form.put(&(self.keeps_until, self.succeeded));
    }
}
