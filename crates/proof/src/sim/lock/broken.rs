//! Applies store operations with planted bugs in their filters and updates. Without a planted bug,
//! the reference implementation applies the operation.

use super::entries::all;
use crate::election::Claim;
use crate::lock::mutation::planted;
use crate::lock::{
    Entry, EntryMode, EntryVersion, FoundLock, LockDocument, LockOperation, LockOutcome,
};
use crate::reference::lock::{self as reference, By, Performed};

pub(crate) fn apply(stored: &mut FoundLock, by: By<'_>, operation: &LockOperation) -> Performed {
    let changed = if let FoundLock::Lock(lock) = stored {
        change(lock, by, operation)
    } else {
        Changed::Nothing
    };
    match changed {
        Changed::Nothing if planted!(TokenNotRaised) => without_raising(stored, by, operation),
        Changed::Nothing if planted!(SlotTwice) => with_slots_twice(stored, by, operation),
        Changed::Nothing => reference::apply(stored, by, operation),
        Changed::Operation(other) => reference::apply(stored, by, &other),
        Changed::Done => Performed {
            outcome: LockOutcome::Applied(stored.clone()),
            granted: Vec::new(),
            ended: Vec::new(),
        },
    }
}

/// Grants with the document's current token instead of a higher token.
fn without_raising(stored: &mut FoundLock, by: By<'_>, operation: &LockOperation) -> Performed {
    let before = match stored {
        FoundLock::Lock(lock) => lock.clone(),
        FoundLock::Missing | FoundLock::Foreign(_) => LockDocument::default(),
    };
    let mut performed = reference::apply(stored, by, operation);
    if let (LockOutcome::Applied(_), FoundLock::Lock(lock)) = (&performed.outcome, &mut *stored) {
        lock.token = before.token;
        for entry in &mut lock.holders {
            entry.token = entry.token.map(|token| token.min(before.token));
        }
        performed.outcome = LockOutcome::Applied(stored.clone());
    }
    performed
}

/// Assigns slots as if no holder had a slot.
fn with_slots_twice(stored: &mut FoundLock, by: By<'_>, operation: &LockOperation) -> Performed {
    let mut taken = Vec::new();
    if let FoundLock::Lock(lock) = stored {
        let holders = lock.holders.iter_mut();
        taken.extend(holders.map(|entry| (entry.claim, entry.slot.take())));
    }
    let restore = |entry: &mut Entry| {
        let before = taken.iter().find(|(claim, _)| *claim == entry.claim);
        entry.slot = before.and_then(|(_, slot)| *slot).or(entry.slot);
    };
    let mut performed = reference::apply(stored, by, operation);
    if let FoundLock::Lock(lock) = stored {
        lock.holders.iter_mut().for_each(restore);
    }
    for ended in &mut performed.ended {
        restore(&mut ended.entry);
    }
    if let LockOutcome::Applied(found) = &mut performed.outcome {
        found.clone_from(stored);
    }
    performed
}

enum Changed {
    Nothing,
    /// The store performs this operation instead.
    Operation(LockOperation),
    /// The planted bug has already changed the document.
    Done,
}

fn change(lock: &mut LockDocument, by: By<'_>, operation: &LockOperation) -> Changed {
    let there = |claim: Claim| all(lock).any(|entry| entry.claim == claim);
    match operation {
        LockOperation::Leave {
            claim,
            seen,
            success,
            slots,
            ..
        } if planted!(LeaveByClaim) => Changed::Operation(LockOperation::Leave {
            claim: *claim,
            mine: all(lock).map(|entry| entry.revision).collect(),
            seen: *seen,
            success: success.clone(),
            slots: *slots,
        }),
        LockOperation::Leave { claim, .. } if planted!(NoGrantInLeave) && there(*claim) => {
            take_out(lock, &[*claim]);
            Changed::Done
        }
        LockOperation::Evict { entries, seen, .. }
            if planted!(OverlookedWaits) && entries.is_empty() =>
        {
            Changed::Operation(LockOperation::Break {
                claims: Vec::new(),
                seen: *seen,
            })
        }
        LockOperation::Evict { entries, .. } if planted!(NoGrantInSweep) => {
            let unchanged = |pair: &&EntryVersion| {
                all(lock).any(|e| (e.claim, e.revision) == (pair.claim, pair.revision))
            };
            let gone: Vec<_> = entries.iter().filter(unchanged).map(|p| p.claim).collect();
            if gone.is_empty() {
                return Changed::Nothing;
            }
            take_out(lock, &gone);
            Changed::Done
        }
        LockOperation::Evict {
            entries,
            me,
            ending,
            seen,
        } if planted!(SweepWithoutRevision) => {
            let stored = |pair: &EntryVersion| {
                let entry = all(lock).find(|entry| entry.claim == pair.claim);
                entry.map_or(*pair, |entry| EntryVersion {
                    revision: entry.revision,
                    ..*pair
                })
            };
            Changed::Operation(LockOperation::Evict {
                entries: entries.iter().map(stored).collect(),
                me: *me,
                ending: *ending,
                seen: *seen,
            })
        }
        LockOperation::Join { entry, .. } if planted!(SlotsChanged) => {
            lock.slots = entry.slots;
            Changed::Nothing
        }
        LockOperation::Join { entry, .. }
            if planted!(SharedOvertakes)
                && entry.mode == EntryMode::Shared
                && lock.slots == 0
                && !lock.queue.is_empty()
                && !there(entry.claim)
                && lock
                    .holders
                    .iter()
                    .all(|held| held.mode == EntryMode::Shared) =>
        {
            let waiting = std::mem::take(&mut lock.queue);
            let mut alone = FoundLock::Lock(lock.clone());
            reference::apply(&mut alone, by, operation);
            if let FoundLock::Lock(after) = alone {
                *lock = after;
            }
            lock.queue = waiting;
            Changed::Done
        }
        LockOperation::Join { entry, .. }
            if planted!(JoinedTwice) && there(entry.claim) && lock.slots == entry.slots =>
        {
            let again = all(lock).find(|e| e.claim == entry.claim).cloned();
            lock.queue.extend(again.map(|e| Entry { token: None, ..e }));
            Changed::Done
        }
        _ => Changed::Nothing,
    }
}

/// Changes an answer, so that the contender acts as if it ignored a rule for answers.
pub(super) fn read(outcome: &mut LockOutcome) {
    if let LockOutcome::Applied(FoundLock::Lock(lock)) = outcome
        && planted!(FutureSuccessCounts)
    {
        for success in &mut lock.successes {
            success.at = success.at.min(lock.store_now);
        }
    }
}

fn take_out(lock: &mut LockDocument, claims: &[Claim]) {
    lock.holders.retain(|entry| !claims.contains(&entry.claim));
    lock.queue.retain(|entry| !claims.contains(&entry.claim));
}
