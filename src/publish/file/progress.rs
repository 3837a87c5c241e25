//! Progress of the status file thread. A write to a hanging disk does not fail, it only takes long.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::election::BootTime;

/// Value between writes. No write begins in the first nanosecond after boot.
const IDLE: u64 = 0;

/// The start of the write in progress. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct WriteProgress {
    begun_ns: Arc<AtomicU64>,
}

impl WriteProgress {
    pub(super) fn begins(&self, now: BootTime) {
        self.begun_ns.store(now.as_nanos(), Ordering::Relaxed);
    }

    pub(super) fn ends(&self) {
        self.begun_ns.store(IDLE, Ordering::Relaxed);
    }

    /// Returns the duration of the write in progress so far; `None` between writes.
    pub fn busy_for(&self, now: BootTime) -> Option<Duration> {
        match self.begun_ns.load(Ordering::Relaxed) {
            IDLE => None,
            begun => Some(now.since(BootTime::from_nanos(begun))),
        }
    }
}
