//! Properties of the document after every write. Each write makes every possible grant, and keeps
//! the order of the queue. Tokens grow. Each slot has one holder, and the number of slots does not
//! change while the lock is in use.

use super::{Violation, explain, violation, with};
use crate::election::{Claim, Token};
use crate::lock::{Entry, EntryMode, HOLDERS_MAX, LockDocument, QUEUE_MAX};
use crate::proof::sim::lock::entries::all;
use crate::proof::sim::lock::fixture::{entry, held};
use crate::reference::lock::grantable;

pub(crate) fn check(before: &LockDocument, after: &LockDocument) -> Option<Violation> {
    unique(after)
        .or_else(|| grants(before, after))
        .or_else(|| order(before, after))
        .or_else(|| tokens(before, after))
        .or_else(|| slots(before, after))
        .or_else(|| own_slots(before, after))
        .or_else(|| bounds(after))
}

/// Checks that no further grant is possible. If a grant were missed, the lock would stay free
/// while its queue waits. After a manual edit has freed a place, only a write that neither adds nor
/// removes an entry may leave the place free.
fn grants(before: &LockDocument, after: &LockDocument) -> Option<Violation> {
    let waiting = grantable(after);
    let claims = |lock: &LockDocument| {
        let claims = |entries: &[Entry]| entries.iter().map(|e| e.claim).collect::<Vec<_>>();
        (claims(&lock.holders), claims(&lock.queue))
    };
    let left = waiting == grantable(before) && claims(before) == claims(after);
    let evidence = || format!("{waiting} queued entries could be granted the lock: {after:?}");
    explain(waiting == 0 || left, "grants are complete", evidence)
}

fn position(entries: &[Entry], claim: Claim) -> Option<usize> {
    entries.iter().position(|entry| entry.claim == claim)
}

/// Checks that a new holder overtakes no entry of the queue, and that the queue keeps its order.
fn order(before: &LockDocument, after: &LockDocument) -> Option<Violation> {
    let came = |entry: &&Entry| position(&before.holders, entry.claim).is_none();
    let passed = after.holders.iter().filter(came).find_map(|entry| {
        let place = position(&before.queue, entry.claim).unwrap_or(before.queue.len());
        let earlier = before.queue[..place].iter();
        let left = earlier
            .map(|e| e.claim)
            .find(|c| position(&after.queue, *c).is_some())?;
        Some((entry.claim, left))
    });
    let kept = |entry: &&Entry| position(&before.queue, entry.claim).is_some();
    let (old, new): (Vec<_>, Vec<_>) = after.queue.iter().partition(kept);
    let places: Vec<_> = old
        .iter()
        .map(|e| position(&before.queue, e.claim))
        .collect();
    let sorted = places.is_sorted() && after.queue.iter().eq(old.into_iter().chain(new));
    match passed {
        Some((claim, left)) => violation("no entry overtakes", format!("{claim} passes {left}")),
        None if !sorted => violation("no entry overtakes", format!("{before:?} then {after:?}")),
        None => None,
    }
}

fn tokens(before: &LockDocument, after: &LockDocument) -> Option<Violation> {
    let known = |entry: &Entry| all(before).find(|e| e.claim == entry.claim);
    let mut new: Vec<Token> = Vec::new();
    let mut changed = false;
    for entry in &after.holders {
        let old = known(entry).and_then(|e| e.token);
        match (old, entry.token) {
            (old, token) if old == token => {}
            // An owner that cannot use the token of its grant gets another token when it confirms.
            (Some(_), Some(token)) if known(entry).is_some_and(|e| !e.is_confirmed()) => {
                new.push(token);
            }
            (None, Some(token)) => new.push(token),
            (_, _) => changed = true,
        }
    }
    new.sort_unstable();
    let grows = new.windows(2).all(|pair| pair[0] < pair[1])
        && new.first().is_none_or(|token| *token > before.token)
        && new.last().is_none_or(|token| *token <= after.token)
        && after.token >= before.token;
    explain(grows && !changed, "I3", || {
        format!("{before:?} then {after:?}")
    })
}

fn slots(before: &LockDocument, after: &LockDocument) -> Option<Violation> {
    let occupied = before.holders.len() + before.queue.len() > 0;
    let evidence = || format!("{} then {}", before.slots, after.slots);
    explain(
        !occupied || before.slots == after.slots,
        "the number of slots stays fixed",
        evidence,
    )
}

/// Checks that no two holders have the same slot, and that each holder keeps its slot.
fn own_slots(before: &LockDocument, after: &LockDocument) -> Option<Violation> {
    let mut slots: Vec<_> = after.holders.iter().filter_map(|e| e.slot).collect();
    slots.sort_unstable();
    let apart = slots.windows(2).all(|pair| pair[0] < pair[1]);
    let legal = slots.last().is_none_or(|slot| *slot < after.slots);
    let kept = before.holders.iter().all(|old| {
        let mut now = after.holders.iter().filter(|e| e.claim == old.claim);
        now.all(|now| old.slot.is_none() || now.slot == old.slot)
    });
    explain(apart && legal && kept, "each slot has one holder", || {
        format!("{before:?} then {after:?}")
    })
}

fn unique(after: &LockDocument) -> Option<Violation> {
    let mut claims: Vec<_> = all(after).map(|e| e.claim).collect();
    claims.sort_unstable();
    let twice = claims.windows(2).find(|pair| pair[0] == pair[1])?;
    violation("claims are unique", format!("{} occurs twice", twice[0]))
}

fn bounds(after: &LockDocument) -> Option<Violation> {
    let fits = after.holders.len() <= HOLDERS_MAX && after.queue.len() <= QUEUE_MAX;
    let evidence = || format!("{} hold, {} wait", after.holders.len(), after.queue.len());
    explain(fits, "bounds", evidence)
}

fn lock(token: i64, holders: &[Entry], queue: &[Entry]) -> LockDocument {
    LockDocument {
        token: Token::new(token).expect("not negative"),
        slots: 0,
        holders: holders.to_vec(),
        queue: queue.to_vec(),
        ..LockDocument::default()
    }
}

fn broken(before: &LockDocument, after: &LockDocument) -> Option<&'static str> {
    check(before, after).map(|violation| violation.invariant)
}

const X: EntryMode = EntryMode::Exclusive;

#[test]
fn the_documents_of_the_protocol_are_accepted() {
    let (a, b, c) = (held(1, X, 7), entry(2, X), entry(3, X));
    let before = lock(7, std::slice::from_ref(&a), &[b.clone(), c.clone()]);
    assert_eq!(broken(&before, &before), None);
    let left = lock(7, std::slice::from_ref(&b), std::slice::from_ref(&c));
    assert_eq!(broken(&before, &left), None);
    let confirmed = lock(8, &[held(2, X, 8)], std::slice::from_ref(&c));
    assert_eq!(broken(&left, &confirmed), None);
    let evicted = lock(8, &[held(3, X, 8)], &[]);
    assert_eq!(broken(&before, &evicted), None);
}

#[test]
fn a_lost_wake_up_is_found() {
    let (a, b) = (held(1, X, 7), entry(2, X));
    let before = lock(7, &[a], std::slice::from_ref(&b));
    assert_eq!(
        broken(&before, &lock(7, &[], &[b])),
        Some("grants are complete")
    );
}

#[test]
fn a_write_that_leaves_the_gap_of_an_edit_is_found_unless_it_changes_no_membership() {
    let (b, c) = (entry(2, X), entry(3, X));
    let edited = lock(7, &[], &[b.clone(), c.clone()]);
    assert_eq!(broken(&edited, &edited), None, "a renewal");
    let joined = lock(7, &[], &[b.clone(), c, entry(4, X)]);
    assert_eq!(broken(&edited, &joined), Some("grants are complete"));
    let left = lock(7, &[], &[b]);
    assert_eq!(broken(&edited, &left), Some("grants are complete"));
}

#[test]
fn queue_jumping_is_found() {
    let (a, b, c) = (held(1, X, 7), entry(2, X), entry(3, X));
    let before = lock(7, std::slice::from_ref(&a), &[b.clone(), c.clone()]);
    let passed = lock(7, std::slice::from_ref(&c), std::slice::from_ref(&b));
    assert_eq!(broken(&before, &passed), Some("no entry overtakes"));
    let turned = lock(7, std::slice::from_ref(&a), &[c, b.clone()]);
    assert_eq!(broken(&before, &turned), Some("no entry overtakes"));
    let reader = held(4, EntryMode::Shared, 8);
    let held = held(1, EntryMode::Shared, 7);
    let before = lock(7, std::slice::from_ref(&held), std::slice::from_ref(&b));
    let passed = lock(8, &[held, reader], &[b]);
    assert_eq!(broken(&before, &passed), Some("no entry overtakes"));
}

#[test]
fn a_token_that_does_not_grow_is_found() {
    let granted = lock(7, &[entry(1, X)], &[]);
    let again = lock(7, &[held(1, X, 7)], &[]);
    assert_eq!(broken(&granted, &again), Some("I3"));
    let changed = lock(9, &[held(1, X, 9)], &[]);
    assert_eq!(broken(&again, &changed), Some("I3"));
    assert_eq!(broken(&granted, &lock(6, &[entry(1, X)], &[])), Some("I3"));
}

#[test]
fn slots_that_change_under_a_holder_are_found() {
    let before = lock(7, &[held(1, X, 7)], &[]);
    let after = with(before.clone(), |it| it.slots = 2);
    assert_eq!(
        broken(&before, &after),
        Some("the number of slots stays fixed")
    );
    let empty = lock(7, &[], &[]);
    let taken = with(lock(8, &[held(1, EntryMode::Slot, 8)], &[]), |it| {
        it.slots = 2
    });
    assert_eq!(broken(&empty, &taken), None);
}

#[test]
fn slots_that_two_have_or_that_change_are_found() {
    let of = |slots: &[u32]| {
        let holders = slots.iter().zip(1..).map(|(slot, number)| Entry {
            slot: Some(*slot),
            ..held(number, EntryMode::Slot, i64::from(number))
        });
        let holders: Vec<_> = holders.collect();
        with(lock(7, &holders, &[]), |it| it.slots = 3)
    };
    let check = |before, after| own_slots(&of(before), &of(after)).map(|v| v.invariant);
    assert_eq!(check(&[0, 2], &[0, 2, 1]), None);
    assert_eq!(check(&[0], &[0, 0]), Some("each slot has one holder"));
    assert_eq!(check(&[0], &[0, 3]), Some("each slot has one holder"));
    assert_eq!(check(&[0, 2], &[2, 0]), Some("each slot has one holder"));
}

#[test]
fn a_claim_that_is_there_twice_is_found() {
    let twice = lock(7, &[held(1, X, 7)], &[entry(1, X)]);
    assert_eq!(broken(&twice, &twice), Some("claims are unique"));
}

#[test]
fn too_many_are_found() {
    let many = |n: usize| vec![held(1, EntryMode::Shared, 1); n];
    assert_eq!(bounds(&lock(7, &many(256), &many(512))), None);
    assert!(bounds(&lock(7, &many(257), &[])).is_some());
    assert!(bounds(&lock(7, &[], &many(513))).is_some());
}
