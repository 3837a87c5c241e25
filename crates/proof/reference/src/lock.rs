//! The filter and the update of each write of a lock.
//!
//! `tests/locks/writes.rs` compares this file with the shipped filters and pipelines on a real
//! server.

use std::time::Duration;

use leasehold_core::election::{Claim, Identity, Revision, Token, WallMillis};
use leasehold_core::lock::{
    Ending, Entry, EntryMode, EntryOwner, EntryVersion, FoundLock, Grant, HOLDERS_MAX,
    LockDocument, LockOperation, LockOutcome, NewEntry, QUEUE_MAX, SUCCESSES_MAX, Success, WorkKey,
    Writer,
};

/// The sender of an operation, and the clocks that the operation uses.
#[derive(Debug, Clone, Copy)]
pub struct By<'a> {
    /// The sender's name, which the operation writes into the sender's entry.
    pub identity: &'a Identity,
    /// The sender's wall clock when it sent the operation.
    pub at: WallMillis,
    /// The store's clock when it performs the operation.
    pub store_now: WallMillis,
}

/// The outcome and the effects of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Performed {
    /// The outcome that the sender receives.
    pub outcome: LockOutcome,
    /// The claims of other contenders that the operation granted, in order. If the list is not
    /// empty, it replaces the document's field `granted`. The grant is `None` if the tokens are
    /// exhausted, or if an older version of leasehold granted the claim.
    pub granted: Vec<(Claim, Option<Grant>)>,
    /// The entries that the operation added to the history, oldest first.
    pub ended: Vec<Ended>,
}

/// A history entry, for a claim that had a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// A copy of the claim's entry in the document.
    pub entry: Entry,
    /// The reason why the claim ended.
    pub ending: Ending,
}

/// Applies an operation to the stored document.
pub fn apply(stored: &mut FoundLock, by: By<'_>, operation: &LockOperation) -> Performed {
    let mut written = Written::default();
    let matched = match (operation, &mut *stored) {
        (LockOperation::Read { confirm: _ }, _) => true,
        (LockOperation::Create { seen }, FoundLock::Missing) => {
            *stored = FoundLock::Lock(LockDocument {
                token: *seen,
                ..LockDocument::default()
            });
            true
        }
        (_, FoundLock::Missing | FoundLock::Foreign(_)) | (LockOperation::Create { .. }, _) => {
            false
        }
        (write, FoundLock::Lock(lock)) => written.write(lock, by, write),
    };
    let Written { granted, ended } = written;
    if let (FoundLock::Lock(lock), true) = (&mut *stored, matched) {
        lock.store_now = by.store_now;
    }
    Performed {
        outcome: if matched {
            LockOutcome::Applied(stored.clone())
        } else {
            LockOutcome::Rejected
        },
        granted,
        ended,
    }
}

/// Returns the value of the document's field `next`, which is the claim at the head of the queue.
pub fn next(lock: &LockDocument) -> Option<Claim> {
    lock.queue.first().map(|entry| entry.claim)
}

/// Returns how many entries at the head of the queue may be granted now.
pub fn grantable(lock: &LockDocument) -> usize {
    let places = |most: usize| most.saturating_sub(lock.holders.len());
    if lock.slots > 0 {
        let slots = usize::try_from(lock.slots).expect("a machine of 32 bits or more");
        return places(slots).min(lock.queue.len());
    }
    match lock.queue.first().map(|head| head.mode) {
        None => 0,
        Some(EntryMode::Shared) if held_alone(lock) => 0,
        Some(EntryMode::Shared) => {
            let readers = lock
                .queue
                .iter()
                .take_while(|e| e.mode == EntryMode::Shared);
            readers.count().min(places(HOLDERS_MAX))
        }
        Some(EntryMode::Exclusive | EntryMode::Slot) => usize::from(lock.holders.is_empty()),
    }
}

/// Returns the next token, which is above both `token` and `seen`, or `None` if the tokens are
/// exhausted. A grant without a token confers no authority.
fn next_token(token: Token, seen: Token) -> Option<Token> {
    token.max(seen).next()
}

fn held_alone(lock: &LockDocument) -> bool {
    lock.holders.iter().any(|e| e.mode != EntryMode::Shared)
}

fn is_empty(lock: &LockDocument) -> bool {
    lock.holders.is_empty() && lock.queue.is_empty()
}

#[derive(Default)]
struct Written {
    granted: Vec<(Claim, Option<Grant>)>,
    ended: Vec<Ended>,
}

impl Written {
    fn write(&mut self, lock: &mut LockDocument, by: By<'_>, operation: &LockOperation) -> bool {
        match operation {
            LockOperation::Read { .. } | LockOperation::Create { .. } => false,
            LockOperation::Join {
                entry,
                seen,
                token_min,
                non_blocking,
            } => lock.token >= *token_min && self.join(lock, by, entry, *seen, *non_blocking),
            LockOperation::Renew {
                claim,
                revision,
                mine,
                seen,
                min_hold,
            } => renew(lock, by, (*claim, *revision), mine, (*seen, *min_hold)),
            LockOperation::Keep {
                claim,
                revision,
                mine,
                min_hold,
                success,
            } => {
                let kept = keep(lock, by, (*claim, *revision), mine, *min_hold);
                recorded(lock, by, success.as_ref().filter(|_| kept));
                kept
            }
            LockOperation::Leave {
                claim,
                mine,
                seen,
                success,
                slots,
            } => {
                let is_mine =
                    |entry: &Entry| entry.claim == *claim && mine.contains(&entry.revision);
                let left = self.take_out(lock, is_mine, (Ending::Released, *seen));
                if left {
                    self.grant(lock, by, (None, *slots > 0), *seen);
                }
                recorded(lock, by, success.as_ref().filter(|_| left));
                left
            }
            LockOperation::Evict {
                entries,
                me,
                ending,
                seen,
            } => {
                let unchanged = |entry: &Entry| {
                    entries.contains(&EntryVersion {
                        claim: entry.claim,
                        revision: entry.revision,
                    })
                };
                let waits = |entry: &Entry| me.is_none_or(|me| me.claim == entry.claim);
                let matched = match entries.is_empty() {
                    true => lock.queue.iter().any(waits),
                    false => self.take_out(lock, unchanged, (*ending, *seen)),
                };
                if matched {
                    lock.token = lock.token.max(*seen);
                    self.grant(lock, by, (*me, true), *seen);
                }
                matched
            }
            LockOperation::Break { claims, seen } => {
                let shown = |entry: &Entry| claims.contains(&entry.claim);
                let gone = self.take_out(lock, shown, (Ending::Broken, *seen));
                if gone {
                    self.grant(lock, by, (None, true), *seen);
                }
                gone
            }
        }
    }

    fn join(
        &mut self,
        lock: &mut LockDocument,
        by: By<'_>,
        joining: &NewEntry,
        seen: Token,
        non_blocking: bool,
    ) -> bool {
        let known = |entry: &Entry| entry.claim == joining.claim;
        let fits = lock.slots == joining.slots || is_empty(lock);
        let full = lock.queue.len() >= QUEUE_MAX;
        let place_free = match joining.mode {
            _ if !lock.queue.is_empty() => false,
            EntryMode::Exclusive => lock.holders.is_empty(),
            EntryMode::Shared => !held_alone(lock) && lock.holders.len() < HOLDERS_MAX,
            EntryMode::Slot => lock.holders.len() < joining.slots as usize,
        };
        if lock.holders.iter().chain(&lock.queue).any(known)
            || full
            || !fits
            || (non_blocking && !place_free)
        {
            return false;
        }
        lock.slots = joining.slots;
        lock.token = lock.token.max(seen);
        lock.queue.push(Entry {
            claim: joining.claim,
            owner: EntryOwner {
                identity: by.identity.clone(),
                session: joining.session,
                acquired_at: by.at,
                renewed_at: by.at,
            },
            mode: joining.mode,
            revision: joining.revision,
            lease_duration: joining.lease_duration,
            token: None,
            granted_revision: None,
            slot: None,
            min_hold: Duration::ZERO,
            work_done: false,
        });
        let me = Writer {
            claim: joining.claim,
            revision: joining.revision,
        };
        self.grant(lock, by, (Some(me), joining.slots > 0), seen);
        true
    }

    fn take_out(
        &mut self,
        lock: &mut LockDocument,
        goes: impl Fn(&Entry) -> bool,
        (ending, seen): (Ending, Token),
    ) -> bool {
        let gone: Vec<Entry> = lock.holders.extract_if(.., |e| goes(e)).collect();
        let waited = lock.queue.len();
        lock.queue.retain(|entry| !goes(entry));
        if gone.is_empty() && waited == lock.queue.len() {
            return false;
        }
        let held = gone.into_iter().filter(|entry| entry.token.is_some());
        self.ended.extend(held.map(|entry| {
            // The work had ended normally, and the entry was only kept for its minimum hold.
            let ended_before = ending == Ending::Expired && entry.work_done;
            let ending = if ended_before {
                Ending::Released
            } else {
                ending
            };
            Ended { entry, ending }
        }));
        lock.token = lock.token.max(seen);
        true
    }

    /// Moves the entries that may hold the lock from the queue to the holders, in order. Each entry
    /// gets a token, and also a slot if `gives_slots` and the lock has slots.
    fn grant(
        &mut self,
        lock: &mut LockDocument,
        by: By<'_>,
        (me, gives_slots): (Option<Writer>, bool),
        seen: Token,
    ) {
        let count = grantable(lock);
        let mut moving: Vec<Entry> = lock.queue.drain(..count).collect();
        for place in 0..moving.len() {
            let (numbered, rest) = moving.split_at_mut(place);
            let entry = &mut rest[0];
            raise(&mut lock.token, entry, seen);
            if gives_slots {
                take_slot(lock, numbered, entry);
            }
            entry.owner.acquired_at = by.store_now;
            match me.filter(|me| me.claim == entry.claim) {
                // The sender's own write also confirms its grant.
                Some(me) => {
                    entry.revision = me.revision;
                    entry.owner.renewed_at = by.at;
                }
                None => {
                    entry.granted_revision = Some(entry.revision);
                    self.granted.push((entry.claim, entry.unconfirmed_grant()));
                }
            }
        }
        lock.holders.append(&mut moving);
    }
}

/// Returns the free slots in ascending order. A slot is free if no holder and no entry in `granted`
/// has it.
fn free_slots<'a>(lock: &'a LockDocument, granted: &'a [Entry]) -> impl Iterator<Item = u32> {
    let taken = move |slot: &u32| {
        let mut entries = lock.holders.iter().chain(granted);
        entries.any(|entry| entry.slot == Some(*slot))
    };
    (0..lock.slots).filter(move |slot| !taken(slot))
}

/// Assigns a slot to an entry: the lowest free slot whose last owner was the owner of this entry,
/// or else the lowest free slot. The entries in `granted` already have their slots.
fn take_slot(lock: &mut LockDocument, granted: &[Entry], entry: &mut Entry) {
    if lock.slots == 0 {
        return;
    }
    lock.slot_owners.resize(lock.slots as usize, None);
    let owner = |slot: u32| lock.slot_owners.get(slot as usize).cloned().flatten();
    let own = |slot: &u32| owner(*slot).as_ref() == Some(&entry.owner.identity);
    let slot = free_slots(lock, granted).find(own);
    entry.slot = slot.or_else(|| free_slots(lock, granted).next());
    if let Some(slot) = entry.slot {
        lock.slot_owners[slot as usize] = Some(entry.owner.identity.clone());
    }
}

fn raise(token: &mut Token, entry: &mut Entry, seen: Token) {
    entry.token = next_token(*token, seen);
    *token = entry.token.unwrap_or((*token).max(seen));
}

fn renew(
    lock: &mut LockDocument,
    by: By<'_>,
    (claim, revision): (Claim, Revision),
    mine: &[Revision],
    (seen, min_hold): (Token, Option<Duration>),
) -> bool {
    let is_mine = |entry: &Entry| entry.claim == claim && mine.contains(&entry.revision);
    let free_slot = free_slots(lock, &[]).next();
    let place = lock.holders.iter().position(is_mine);
    let entry = match place {
        Some(place) => Some(&mut lock.holders[place]),
        None => lock.queue.iter_mut().find(|entry| is_mine(entry)),
    };
    let Some(entry) = entry else { return false };
    let above = entry.token.is_some_and(|token| token > seen);
    if place.is_some() && !entry.is_confirmed() && !above {
        raise(&mut lock.token, entry, seen);
    }
    if place.is_some() {
        entry.slot = entry.slot.or(free_slot);
    }
    entry.min_hold = min_hold.unwrap_or(entry.min_hold);
    entry.revision = revision;
    entry.owner.renewed_at = by.at;
    true
}

/// Replaces the key's previous success with a new success. `at` is a time on the store's clock.
fn record(lock: &mut LockDocument, key: &WorkKey, at: WallMillis) {
    lock.successes.retain(|success| success.key != *key);
    lock.successes.push(Success {
        key: key.clone(),
        at,
    });
    let excess = lock.successes.len().saturating_sub(SUCCESSES_MAX);
    lock.successes.drain(..excess);
}

fn recorded(lock: &mut LockDocument, by: By<'_>, success: Option<&WorkKey>) {
    if let Some(key) = success {
        record(lock, key, by.store_now);
    }
}

fn keep(
    lock: &mut LockDocument,
    by: By<'_>,
    (claim, revision): (Claim, Revision),
    mine: &[Revision],
    min_hold: Duration,
) -> bool {
    let is_mine = |entry: &&mut Entry| entry.claim == claim && mine.contains(&entry.revision);
    let Some(entry) = lock.holders.iter_mut().find(is_mine) else {
        return false;
    };
    (entry.min_hold, entry.work_done) = (min_hold, true);
    entry.revision = revision;
    entry.owner.renewed_at = by.at;
    true
}
