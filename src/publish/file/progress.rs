//! Whether the thread of the status files gets on: a disk that hangs does not
//! fail, so nothing else would tell.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::election::BootTime;

/// Not in a write. No write begins in the first nanosecond after the boot.
const IDLE: u64 = 0;

/// The write that is under way, as the thread notes it. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    begun_ns: Arc<AtomicU64>,
}

impl Progress {
    pub(super) fn begins(&self, now: BootTime) {
        self.begun_ns.store(now.as_nanos(), Ordering::Relaxed);
    }

    pub(super) fn ends(&self) {
        self.begun_ns.store(IDLE, Ordering::Relaxed);
    }

    /// How long the write that is under way has taken so far; `None` between
    /// writes.
    pub fn busy_for(&self, now: BootTime) -> Option<Duration> {
        match self.begun_ns.load(Ordering::Relaxed) {
            IDLE => None,
            begun => Some(now.since(BootTime::from_nanos(begun))),
        }
    }
}
