//! A status directory and its writing thread, as in `publish/file.rs` and
//! `crates/status/src/directory.rs`. The thread writes the newest status, one write at a time. The
//! thread answers a flush at the end of a round that began after the request.

use std::time::Duration;

use crate::election::mutation::planted;
use crate::election::{BootTime, Claim, Role, Status, Timings, Token};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Health {
    #[default]
    Good,
    Slow,
    /// The disk has no room for a write, but files can be removed.
    Full,
    ReadOnly,
    /// Writes do not return while this fault lasts.
    Hangs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Says {
    pub(super) process: usize,
    pub(super) claim: Claim,
    pub(super) token: Token,
    pub(super) until: BootTime,
    pub(super) boot: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) memory: RecoveredState,
    pub(super) boot: u64,
    pub(super) inode: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct RecoveredState {
    pub(super) claim: Option<Claim>,
    pub(super) token: Token,
    pub(super) lease_longest: Option<Duration>,
    /// The highest token whose lease duration was considered for `lease_longest`. Only the observer
    /// uses this token.
    pub(super) informed: Token,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Directory {
    pub(super) machine: usize,
    pub(super) inode: u64,
    pub(super) record: Option<Record>,
    pub(super) files: [Option<Says>; 2],
    pub(super) health: Health,
    /// The guard whose child runs according to the record. `None` if no child was started or a
    /// process has seen the child's exit.
    pub(super) child: Option<usize>,
    pub(super) child_awaited_since: Option<u64>,
    pub(super) locked_by: Option<usize>,
}

impl Directory {
    pub(super) fn new(machine: usize, inode: u64) -> Self {
        Self {
            machine,
            inode,
            ..Self::default()
        }
    }

    pub(super) fn record(&mut self, memory: RecoveredState, boot: u64) {
        self.record = Some(Record {
            memory,
            boot,
            inode: self.inode,
        });
    }

    pub(super) fn memory(&self, boot: u64) -> RecoveredState {
        let Some(record) = self.record else {
            return RecoveredState::default();
        };
        let proven = (record.boot == boot || planted!(RecordOfAnotherBoot))
            && (record.inode == self.inode || planted!(RecordOfAnotherFile));
        RecoveredState {
            claim: record.memory.claim.filter(|_| proven),
            ..record.memory
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct FileThread {
    writing: Option<Writing>,
    called: bool,
    flushes: usize,
    shown: Option<Status>,
    says_leader: bool,
    pub(super) rewrite_at: BootTime,
    /// The instant at which a failed write is repeated.
    retry_at: BootTime,
    pub(super) remember: Option<RecoveredState>,
}

#[derive(Debug, Clone)]
struct Writing {
    truth: Status,
    says: Option<Says>,
    flushes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Round {
    Idle,
    Writes,
    /// The files already showed the status, so no write was needed. The thread answers this number
    /// of flushes.
    Shown(usize),
}

impl FileThread {
    pub(super) fn new() -> Self {
        Self {
            called: true,
            says_leader: true,
            ..Self::default()
        }
    }

    pub(super) fn wake(&mut self) {
        self.called = true;
    }

    /// Requests a flush. As in `elector/host.rs`, the process ignores the answers of earlier
    /// flushes.
    pub(super) fn flush(&mut self) {
        self.called = true;
        self.flushes = 1;
        if let Some(writing) = &mut self.writing {
            writing.flushes = 0;
        }
    }

    /// Returns the time when the next round is due if no call wakes the thread; `None` during a
    /// write.
    pub(super) fn next_look(&self) -> Option<BootTime> {
        self.writing.is_none().then(|| self.look_at())
    }

    fn look_at(&self) -> BootTime {
        let Some(shown) = &self.shown else {
            return self.retry_at;
        };
        match shown.authority {
            Some(authority) => self.rewrite_at.min(authority.valid_until),
            None => self.rewrite_at,
        }
    }

    pub(super) fn look(
        &mut self,
        status: &Status,
        now: BootTime,
        timings: &Timings,
        says: impl FnOnce(&Status) -> Option<Says>,
    ) -> Round {
        if self.writing.is_some() || !(self.called || now >= self.look_at()) {
            return Round::Idle;
        }
        self.called = false;
        let truth = status.at(now);
        let flushes = std::mem::take(&mut self.flushes);
        if self.shown.as_ref() == Some(&truth) && now < self.rewrite_at {
            return Round::Shown(flushes);
        }
        let interval = timings.renew_interval();
        let refresh = now + timings.lease_duration() / 2;
        self.retry_at = now + interval;
        self.rewrite_at = match (truth.authority, &truth.holder) {
            (Some(_), _) => now + interval * 3 / 2,
            (None, Some(holder)) => refresh.min(holder.until),
            (None, None) => refresh,
        };
        let says = says(&truth).filter(|s| s.until > now && truth.role == Role::Leader);
        self.says_leader |= says.is_some();
        self.writing = Some(Writing {
            truth,
            says,
            flushes,
        });
        Round::Writes
    }

    /// Completes the write, and returns the number of answered flushes and their answer. If writing
    /// "not leader" fails on a full disk, the thread removes files that say "leader";
    /// `second_chance` is true if the thread can then write the files again.
    pub(super) fn written(
        &mut self,
        directory: &mut Directory,
        half: bool,
        second_chance: bool,
    ) -> (usize, bool) {
        let Some(Writing {
            truth,
            says,
            flushes,
        }) = self.writing.take()
        else {
            return (0, false);
        };
        let failed = matches!(directory.health, Health::Full | Health::ReadOnly);
        if failed {
            self.shown = None;
            if half {
                directory.files[0] = says;
            }
            if says.is_some() {
                return (flushes, false);
            }
            if !self.says_leader {
                return (flushes, true);
            }
            if directory.health == Health::ReadOnly {
                return (flushes, false);
            }
            directory.files = [None; 2];
            self.says_leader = false;
            if !second_chance {
                return (flushes, true);
            }
        }
        directory.files = [says; 2];
        self.says_leader = says.is_some();
        self.shown = Some(truth);
        (flushes, true)
    }
}
