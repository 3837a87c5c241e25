//! Contenders of an older version that share a lock with new contenders. The grants of the older
//! version carry no tokens.
//!
//! Older contenders run the shipped state machine. The simulation hides the new fields of documents
//! from this state machine, and changes its writes so that they grant like writes of the older
//! version. The state machine therefore confirms each grant first, and knows no slot numbers.

use std::time::Duration;

use super::entries::all;
use crate::lock::{FoundLock, Hint, LockDocument, LockOperation, LockOutcome};
use crate::reference::lock::{self as reference, By, Performed};

pub(super) fn apply(stored: &mut FoundLock, by: By<'_>, operation: &LockOperation) -> Performed {
    let before = match stored {
        FoundLock::Lock(lock) => lock.clone(),
        FoundLock::Missing | FoundLock::Foreign(_) => LockDocument::default(),
    };
    let mut performed = reference::apply(stored, by, &as_sent(&before, operation));
    if let (LockOutcome::Applied(_), FoundLock::Lock(lock)) = (&performed.outcome, &mut *stored) {
        grant_without_tokens(&before, lock, operation);
        keep_slots(&before, lock);
        performed.outcome = LockOutcome::Applied(stored.clone());
    }
    for (_, grant) in &mut performed.granted {
        *grant = None;
    }
    performed
}

/// Returns the operation that an older version would send. Its renewal keeps an existing token, and
/// the filter of its leave compares only the claim.
fn as_sent(before: &LockDocument, operation: &LockOperation) -> LockOperation {
    let mut operation = operation.clone();
    match &mut operation {
        LockOperation::Renew { claim, seen, .. } => {
            let entry = before.holders.iter().find(|entry| entry.claim == *claim);
            if entry.is_some_and(|entry| entry.token.is_some()) {
                *seen = Default::default();
            }
        }
        LockOperation::Leave { mine, .. } => *mine = all(before).map(|e| e.revision).collect(),
        _ => {}
    }
    operation
}

fn grant_without_tokens(
    before: &LockDocument,
    after: &mut LockDocument,
    operation: &LockOperation,
) {
    let seen = match operation {
        LockOperation::Join { seen, .. }
        | LockOperation::Leave { seen, .. }
        | LockOperation::Evict { seen, .. }
        | LockOperation::Break { seen, .. } => *seen,
        LockOperation::Create { .. }
        | LockOperation::Renew { .. }
        | LockOperation::Keep { .. }
        | LockOperation::Read { .. } => return,
    };
    let held = |claim| before.holders.iter().any(|entry| entry.claim == claim);
    let mut token = before.token.max(seen);
    for entry in after.holders.iter_mut().filter(|e| !held(e.claim)) {
        if entry.granted_revision.take().is_some() {
            entry.token = None;
        } else {
            entry.token = token.next();
            token = entry.token.unwrap_or(token);
        }
    }
    after.token = token;
}

fn keep_slots(before: &LockDocument, after: &mut LockDocument) {
    for entry in &mut after.holders {
        let known = before.holders.iter().find(|e| e.claim == entry.claim);
        entry.slot = known.and_then(|entry| entry.slot);
    }
    after.slot_owners.clone_from(&before.slot_owners);
}

pub(super) fn read(outcome: LockOutcome) -> LockOutcome {
    match outcome {
        LockOutcome::Applied(FoundLock::Lock(mut lock)) => {
            let LockDocument { holders, queue, .. } = &mut lock;
            for entry in holders.iter_mut().chain(queue) {
                entry.granted_revision = None;
                (entry.min_hold, entry.work_done) = (Duration::ZERO, false);
                // The state machine requires a slot number, which an older version does not know.
                entry.slot = Some(0);
            }
            LockOutcome::Applied(FoundLock::Lock(lock))
        }
        other => other,
    }
}

pub(super) fn hint(hint: Hint) -> Hint {
    match hint {
        // An older version recognizes a grant by its claim alone.
        Hint::Granted(Some(_)) => Hint::Changed,
        other => other,
    }
}

#[test]
fn an_older_release_grants_without_a_token_and_a_new_one_with() {
    use super::fixture::{entry, held, token};
    use crate::election::{Identity, Token, WallMillis};
    use crate::lock::EntryMode;

    let identity = Identity::new("a").expect("legal");
    let by = By {
        identity: &identity,
        at: WallMillis(1),
        store_now: WallMillis(0),
    };
    let before = FoundLock::Lock(LockDocument {
        token: token(7),
        slots: 0,
        holders: vec![held(1, EntryMode::Exclusive, 7)],
        queue: vec![entry(2, EntryMode::Exclusive)],
        ..LockDocument::default()
    });
    let leave = LockOperation::Leave {
        claim: super::fixture::claim(1),
        mine: vec![super::fixture::revision(1)],
        seen: Token::ZERO,
        success: None,
        slots: 0,
    };
    let tokens = |found: &FoundLock| match found {
        FoundLock::Lock(lock) => (lock.token, all(lock).map(|e| e.token).collect::<Vec<_>>()),
        other => panic!("{other:?} is not a lock"),
    };
    let mut by_older = before.clone();
    let performed = apply(&mut by_older, by, &leave);
    assert_eq!(tokens(&by_older), (token(7), vec![None]));
    assert_eq!(performed.granted, [(super::fixture::claim(2), None)]);
    let mut by_newer = before;
    reference::apply(&mut by_newer, by, &leave);
    assert_eq!(tokens(&by_newer), (token(8), vec![Some(token(8))]));
}
