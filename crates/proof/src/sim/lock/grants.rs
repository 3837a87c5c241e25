//! Goal: each write grants exactly the entries that it should, and a filter rejects every write
//! that must not match. Method: apply single writes with the reference implementation.

use super::fixture::{claim, entry, held, revision, token};
use crate::election::{Claim, Declared, Identity, Session, Token, WallMillis};
use crate::lock::{
    Ending, Entry, EntryMode, EntryVersion, FoundLock, Grant, HOLDERS_MAX, LockDocument,
    LockOperation, LockOutcome, NewEntry, QUEUE_MAX, Writer,
};
use crate::reference::lock::{By, Performed, apply, grantable, next};

fn lock(slots: u32, holders: Vec<Entry>, queue: Vec<Entry>) -> FoundLock {
    FoundLock::Lock(LockDocument {
        token: token(7),
        slots,
        holders,
        queue,
        ..LockDocument::default()
    })
}

fn perform(stored: &mut FoundLock, operation: &LockOperation) -> Performed {
    let identity = Identity::new("a").expect("legal");
    let by = By {
        identity: &identity,
        at: WallMillis(1),
        store_now: WallMillis(0),
    };
    apply(stored, by, operation)
}

fn applies(stored: &mut FoundLock, operation: &LockOperation) -> bool {
    matches!(perform(stored, operation).outcome, LockOutcome::Applied(_))
}

fn join(number: u8, mode: EntryMode, slots: u32) -> LockOperation {
    LockOperation::Join {
        entry: NewEntry {
            claim: claim(number),
            session: Session::from_bytes([0; 16]),
            mode,
            revision: revision(number),
            slots,
            lease_duration: Declared { millis: 24_000 },
        },
        seen: Token::ZERO,
        token_min: Token::ZERO,
        non_blocking: false,
    }
}

fn non_blocking(mut operation: LockOperation) -> LockOperation {
    let LockOperation::Join { non_blocking, .. } = &mut operation else {
        panic!("{operation:?} does not join");
    };
    *non_blocking = true;
    operation
}

fn leave(number: u8) -> LockOperation {
    LockOperation::Leave {
        claim: claim(number),
        mine: (0..=u8::MAX).map(revision).collect(),
        seen: Token::ZERO,
        success: None,
        slots: 2,
    }
}

fn document(stored: &FoundLock) -> &LockDocument {
    match stored {
        FoundLock::Lock(lock) => lock,
        other => panic!("{other:?} is not a lock"),
    }
}

fn places(stored: &FoundLock) -> (Vec<(u8, Option<i64>)>, Vec<u8>) {
    let number = |e: &Entry| e.claim.bytes()[0];
    let lock = document(stored);
    let holders = lock.holders.iter();
    (
        holders
            .map(|e| (number(e), e.token.map(Token::get)))
            .collect(),
        lock.queue.iter().map(number).collect(),
    )
}

const X: EntryMode = EntryMode::Exclusive;
const S: EntryMode = EntryMode::Shared;

#[test]
fn a_join_of_a_free_lock_is_its_own_confirmation() {
    let mut stored = lock(0, vec![], vec![]);
    let performed = perform(&mut stored, &join(1, X, 0));
    assert_eq!(performed.outcome, LockOutcome::Applied(stored.clone()));
    assert_eq!(performed.granted, []);
    assert_eq!(places(&stored), (vec![(1, Some(8))], vec![]));
    assert_eq!(document(&stored).token, token(8));
}

#[test]
fn a_leave_removes_what_its_owner_wrote_and_nothing_else() {
    let mut stored = lock(0, vec![held(1, X, 7)], vec![entry(2, X)]);
    let before = stored.clone();
    let by_twin = match leave(1) {
        LockOperation::Leave {
            claim,
            seen,
            success,
            slots,
            ..
        } => LockOperation::Leave {
            claim,
            mine: vec![revision(2), revision(9)],
            seen,
            success,
            slots,
        },
        other => other,
    };
    assert!(!applies(&mut stored, &by_twin));
    assert_eq!(stored, before, "the entry of a twin");
    assert!(applies(&mut stored, &leave(1)));
}

#[test]
fn a_leave_grants_in_order_each_with_a_token() {
    let readers = vec![entry(2, S), entry(3, S), entry(4, X), entry(5, S)];
    let mut stored = lock(0, vec![held(1, X, 7)], readers);
    let performed = perform(&mut stored, &leave(1));
    let grant = |number: u8, with| {
        let grant = Grant {
            token: token(with),
            revision: revision(number),
            slot: None,
        };
        (claim(number), Some(grant))
    };
    assert_eq!(performed.granted, [grant(2, 8), grant(3, 9)]);
    assert_eq!(
        places(&stored),
        (vec![(2, Some(8)), (3, Some(9))], vec![4, 5])
    );
    assert_eq!(document(&stored).token, token(9));
    assert!(document(&stored).holders.iter().all(|e| !e.is_confirmed()));
    assert_eq!(next(document(&stored)), Some(claim(4)));
    assert_eq!(performed.ended.len(), 1);
    assert_eq!(performed.ended[0].ending, Ending::Released);
}

#[test]
fn an_entry_without_a_token_that_leaves_makes_no_history() {
    let mut stored = lock(0, vec![entry(1, X)], vec![entry(2, X)]);
    let performed = perform(&mut stored, &leave(1));
    assert_eq!(performed.ended, []);
    assert_eq!(places(&stored), (vec![(2, Some(8))], vec![]));
}

#[test]
fn a_waiting_writer_lets_no_reader_past() {
    let mut stored = lock(0, vec![held(1, S, 7)], vec![entry(2, X)]);
    assert!(applies(&mut stored, &join(3, S, 0)));
    assert_eq!(places(&stored), (vec![(1, Some(7))], vec![2, 3]));
}

#[test]
fn slots_are_filled_up_to_their_number() {
    let slot = |n| entry(n, EntryMode::Slot);
    let mut stored = lock(
        2,
        vec![held(1, EntryMode::Slot, 6), held(2, EntryMode::Slot, 7)],
        vec![slot(3), slot(4)],
    );
    perform(&mut stored, &leave(2));
    assert_eq!(places(&stored), (vec![(1, Some(6)), (3, Some(8))], vec![4]));
}

#[test]
fn the_number_of_slots_changes_only_while_the_lock_is_empty() {
    let mut stored = lock(2, vec![held(1, EntryMode::Slot, 7)], vec![]);
    for other in [join(2, EntryMode::Slot, 3), join(2, X, 0)] {
        assert!(!applies(&mut stored, &other));
    }
    perform(&mut stored, &leave(1));
    perform(&mut stored, &join(2, X, 0));
    assert_eq!(document(&stored).slots, 0);
    assert_eq!(places(&stored), (vec![(2, Some(8))], vec![]));
}

#[test]
fn a_claim_joins_once() {
    let mut stored = lock(0, vec![held(1, X, 7)], vec![entry(2, X)]);
    for known in [1, 2] {
        assert!(!applies(&mut stored, &join(known, X, 0)));
    }
}

#[test]
fn a_try_joins_only_where_it_is_granted() {
    let full = (0..=255).map(|n| held(n, S, 7)).collect::<Vec<_>>();
    assert_eq!(full.len(), HOLDERS_MAX);
    let stranger = join(0x81, S, 0);
    let fewer = full[..127].to_vec();
    let slots = |n: u8| {
        (1..=n)
            .map(|n| held(n, EntryMode::Slot, 7))
            .collect::<Vec<_>>()
    };
    for (stored, operation, granted) in [
        (lock(0, vec![], vec![]), join(9, X, 0), true),
        (lock(0, vec![held(1, S, 7)], vec![]), join(9, X, 0), false),
        (lock(0, vec![held(1, S, 7)], vec![]), join(9, S, 0), true),
        (lock(0, vec![held(1, X, 7)], vec![]), join(9, S, 0), false),
        (
            lock(0, vec![held(1, S, 7)], vec![entry(2, X)]),
            join(9, S, 0),
            false,
        ),
        (lock(3, slots(2), vec![]), join(9, EntryMode::Slot, 3), true),
        (
            lock(3, slots(3), vec![]),
            join(9, EntryMode::Slot, 3),
            false,
        ),
        (lock(0, fewer, vec![]), stranger.clone(), true),
        (lock(0, full, vec![]), stranger, false),
    ] {
        let mut after = stored.clone();
        let applied = applies(&mut after, &non_blocking(operation.clone()));
        assert_eq!(applied, granted, "{operation:?} of {stored:?}");
        assert_eq!(after != stored, granted);
        let queued = |found: &FoundLock| document(found).queue.len();
        assert_eq!(queued(&after), queued(&stored));
    }
}

#[test]
fn the_queue_and_the_holders_are_bounded() {
    let waiting = |n: usize| {
        let number = u128::try_from(n).expect("small") + 1;
        Entry {
            claim: Claim::from_bytes((number << 64).to_be_bytes()),
            ..entry(0, S)
        }
    };
    let queue = |n: usize| (0..n).map(waiting).collect::<Vec<_>>();
    let mut stored = lock(0, vec![held(1, X, 7)], queue(QUEUE_MAX - 1));
    assert!(applies(&mut stored, &join(2, X, 0)));
    assert!(!applies(&mut stored, &join(3, X, 0)));
    perform(&mut stored, &leave(1));
    let after = document(&stored);
    assert_eq!(after.holders.len(), HOLDERS_MAX);
    assert_eq!(after.queue.len(), QUEUE_MAX - HOLDERS_MAX);
    assert_eq!(grantable(after), 0);
}

#[test]
fn a_renewal_matches_what_its_owner_wrote_and_nothing_else() {
    let renew = |mine: &[u8]| LockOperation::Renew {
        claim: claim(1),
        revision: revision(9),
        mine: mine.iter().copied().map(revision).collect(),
        seen: token(20),
        min_hold: None,
    };
    let mut stored = lock(0, vec![held(2, X, 7)], vec![entry(1, X)]);
    assert!(!applies(&mut stored, &renew(&[8])));
    perform(&mut stored, &renew(&[8, 1]));
    let waiting = document(&stored);
    assert_eq!((waiting.token, waiting.queue[0].token), (token(7), None));
    assert_eq!(waiting.queue[0].revision, revision(9));

    perform(&mut stored, &leave(2));
    assert_eq!(places(&stored), (vec![(1, Some(8))], vec![]));
    // The owner has seen higher tokens, so it cannot use the token of its grant.
    perform(&mut stored, &renew(&[9]));
    assert_eq!(places(&stored), (vec![(1, Some(21))], vec![]));
    // Renewing a held entry keeps its token.
    perform(&mut stored, &renew(&[9]));
    assert_eq!(places(&stored), (vec![(1, Some(21))], vec![]));
}

#[test]
fn a_confirmation_keeps_a_token_above_all_that_its_owner_knows() {
    let mut stored = lock(0, vec![held(2, X, 7)], vec![entry(1, X)]);
    perform(&mut stored, &leave(2));
    let renew = LockOperation::Renew {
        claim: claim(1),
        revision: revision(9),
        mine: vec![revision(1)],
        seen: token(7),
        min_hold: None,
    };
    perform(&mut stored, &renew);
    assert_eq!(places(&stored), (vec![(1, Some(8))], vec![]));
    assert!(document(&stored).holders[0].is_confirmed());
}

#[test]
fn a_grant_of_an_older_version_gets_its_token_from_its_owner() {
    let mut stored = lock(0, vec![entry(1, X)], vec![]);
    let renew = LockOperation::Renew {
        claim: claim(1),
        revision: revision(9),
        mine: vec![revision(1)],
        seen: token(20),
        min_hold: None,
    };
    perform(&mut stored, &renew);
    assert_eq!(places(&stored), (vec![(1, Some(21))], vec![]));
    assert_eq!(document(&stored).token, token(21));
}

fn slots(stored: &FoundLock) -> Vec<(u8, Option<u32>)> {
    let holders = document(stored).holders.iter();
    holders.map(|e| (e.claim.bytes()[0], e.slot)).collect()
}

#[test]
fn each_holder_gets_the_lowest_free_slot() {
    let mut stored = lock(3, vec![], vec![]);
    for number in 1..=4 {
        perform(&mut stored, &join(number, EntryMode::Slot, 3));
    }
    assert_eq!(slots(&stored), [(1, Some(0)), (2, Some(1)), (3, Some(2))]);
    // All entries have the same owner name, so the next entry gets the slot that this owner left.
    let performed = perform(&mut stored, &leave(2));
    assert_eq!(slots(&stored), [(1, Some(0)), (3, Some(2)), (4, Some(1))]);
    let [(_, Some(grant))] = performed.granted[..] else {
        panic!("{:?}", performed.granted);
    };
    assert_eq!(grant.slot, Some(1));
}

#[test]
fn an_owner_that_comes_back_gets_its_slot_if_it_is_free() {
    let by = |name, stored: &mut FoundLock, operation: &LockOperation| {
        let identity = Identity::new(name).expect("legal");
        let by = By {
            identity: &identity,
            at: WallMillis(1),
            store_now: WallMillis(0),
        };
        apply(stored, by, operation);
    };
    let mut stored = lock(3, vec![], vec![]);
    for (name, number) in [("a", 1), ("b", 2), ("c", 3)] {
        by(name, &mut stored, &join(number, EntryMode::Slot, 3));
    }
    for number in [1, 2, 3] {
        perform(&mut stored, &leave(number));
    }
    by("c", &mut stored, &join(4, EntryMode::Slot, 3));
    by("d", &mut stored, &join(5, EntryMode::Slot, 3));
    by("b", &mut stored, &join(6, EntryMode::Slot, 3));
    assert_eq!(slots(&stored), [(4, Some(2)), (5, Some(0)), (6, Some(1))]);
    // In the meantime, another owner has taken the slot.
    perform(&mut stored, &leave(4));
    by("a", &mut stored, &join(7, EntryMode::Slot, 3));
    assert_eq!(slots(&stored), [(5, Some(0)), (6, Some(1)), (7, Some(2))]);
}

#[test]
fn a_grant_of_an_older_version_gets_its_slot_from_its_owner() {
    let taken = Entry {
        slot: Some(0),
        ..held(2, EntryMode::Slot, 7)
    };
    let mut stored = lock(2, vec![entry(1, EntryMode::Slot), taken], vec![]);
    let renew = LockOperation::Renew {
        claim: claim(1),
        revision: revision(9),
        mine: vec![revision(1)],
        seen: Token::ZERO,
        min_hold: None,
    };
    perform(&mut stored, &renew);
    assert_eq!(slots(&stored), [(1, Some(1)), (2, Some(0))]);
}

#[test]
fn an_eviction_removes_what_is_unchanged_and_confirms_its_writer() {
    let evict = |pairs: &[(u8, u8)], me: Option<u8>| LockOperation::Evict {
        entries: pairs
            .iter()
            .map(|(c, r)| EntryVersion {
                claim: claim(*c),
                revision: revision(*r),
            })
            .collect(),
        me: me.map(|number| Writer {
            claim: claim(number),
            revision: revision(99),
        }),
        ending: Ending::Expired,
        seen: Token::ZERO,
    };
    let before = lock(
        0,
        vec![held(1, S, 6), held(2, S, 7)],
        vec![entry(3, X), entry(4, X)],
    );
    let mut stored = before.clone();
    let performed = perform(&mut stored, &evict(&[(1, 5), (3, 5)], Some(4)));
    assert_eq!(
        (performed.outcome, stored == before),
        (LockOutcome::Rejected, true)
    );

    perform(&mut stored, &evict(&[(1, 1), (2, 2), (3, 5)], Some(3)));
    assert_eq!(places(&stored), (vec![(3, Some(8))], vec![4]));
    assert_eq!(document(&stored).holders[0].revision, revision(99));

    let mut stored = before;
    let performed = perform(&mut stored, &evict(&[(1, 1), (2, 2), (3, 3), (9, 9)], None));
    assert_eq!(places(&stored), (vec![(4, Some(8))], vec![]));
    assert_eq!(performed.ended.len(), 2);
}

#[test]
fn a_break_looks_at_no_revision() {
    let mut stored = lock(0, vec![held(1, X, 7)], vec![entry(2, X)]);
    let operation = LockOperation::Break {
        claims: vec![claim(1), claim(8)],
        seen: token(30),
    };
    perform(&mut stored, &operation);
    assert_eq!(places(&stored), (vec![(2, Some(31))], vec![]));
    assert_eq!(document(&stored).token, token(31));
    assert!(!applies(&mut stored, &operation));
}

#[test]
fn at_the_end_of_the_tokens_no_entry_is_confirmed() {
    let mut stored = lock(0, vec![], vec![]);
    if let FoundLock::Lock(lock) = &mut stored {
        lock.token = Token::MAX;
    }
    perform(&mut stored, &join(1, X, 0));
    assert_eq!(places(&stored), (vec![(1, None)], vec![]));
    assert_eq!(document(&stored).token, Token::MAX);
}

#[test]
fn only_a_create_makes_a_document_and_nothing_touches_a_foreign_one() {
    let create = LockOperation::Create { seen: token(5) };
    for operation in [join(1, X, 0), leave(1)] {
        let mut stored = FoundLock::Missing;
        assert!(!applies(&mut stored, &operation));
        assert_eq!(stored, FoundLock::Missing);
    }
    let mut stored = FoundLock::Missing;
    perform(&mut stored, &create);
    assert_eq!(document(&stored).token, token(5));
    assert!(!applies(&mut stored, &create));
    let mut foreign = FoundLock::Foreign("a lease".into());
    for operation in [create, join(1, X, 0), leave(1)] {
        assert!(!applies(&mut foreign, &operation));
    }
    let read = LockOperation::Read { confirm: false };
    assert_eq!(
        perform(&mut foreign, &read).outcome,
        LockOutcome::Applied(FoundLock::Foreign("a lease".into()))
    );
}
