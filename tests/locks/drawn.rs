//! Generates random locks and operations. There are few ids, so many operations match an entry.

use std::time::Duration;

use leasehold::election::{Identity, Token, WallMillis};
use leasehold::lock::{
    Ending, Entry, EntryMode, EntryOwner, EntryVersion, LockDocument, LockOperation, NewEntry,
    Success, WorkKey, Writer,
};
use proptest::prelude::*;

use crate::fixture::{claim, entry, joining, revision, token};

/// Entries have claims from 1 to this number. Some joins have higher claims.
const CLAIMS_MAX: u16 = 9;

fn mode() -> impl Strategy<Value = EntryMode> {
    prop_oneof![
        3 => Just(EntryMode::Exclusive),
        4 => Just(EntryMode::Shared),
        1 => Just(EntryMode::Slot),
    ]
}

fn some_token() -> impl Strategy<Value = Token> {
    prop_oneof![
        12 => (0..40_i64).prop_map(token),
        1 => Just(Token::MAX),
        1 => Just(token(i64::MAX - 1)),
    ]
}

fn key() -> impl Strategy<Value = WorkKey> {
    let names = prop::sample::select(vec!["x", "$y", "$$NOW"]);
    names.prop_map(|name| WorkKey::new(name).expect("legal"))
}

fn success() -> impl Strategy<Value = Option<WorkKey>> {
    prop::option::of(key())
}

pub(crate) fn lock() -> impl Strategy<Value = LockDocument> {
    let granted = prop::option::of(1..3_u16);
    let slot = prop::option::of(0..4_u32);
    let least = (prop::sample::select(vec![0, 55_000_u64]), prop::bool::ANY);
    let one = (
        mode(),
        1..3_u16,
        prop::option::of(0..40_i64),
        0..5_i64,
        granted,
        slot,
        least,
    );
    let owner = prop::sample::select(vec![None, Some("a"), Some("b")]);
    let owners = proptest::collection::vec(owner, 0..4);
    let entries = proptest::collection::vec(one, 0..usize::from(CLAIMS_MAX));
    let slots = prop_oneof![3 => Just(0_u32), 2 => 1..4_u32];
    let successes = proptest::collection::btree_map(key(), 0..5_i64, 0..3);
    let drawn = (some_token(), slots, owners, entries, 0..4_usize, successes);
    drawn.prop_map(|(token, slots, owners, drawn, holding, successes)| {
        let mut entries: Vec<Entry> = drawn
            .into_iter()
            .zip(1..)
            .map(
                |((mode, changed, with, at, granted, slot, least), number)| Entry {
                    owner: EntryOwner {
                        renewed_at: WallMillis(at),
                        ..entry(number, mode).owner
                    },
                    mode: if slots > 0 { EntryMode::Slot } else { mode },
                    revision: revision(changed),
                    token: with.and_then(Token::new),
                    granted_revision: granted.map(revision),
                    slot: slot.filter(|_| slots > 0),
                    min_hold: Duration::from_millis(least.0),
                    work_done: least.1,
                    ..entry(number, mode)
                },
            )
            .collect();
        let mut queue = entries.split_off(holding.min(entries.len()));
        for waiting in &mut queue {
            (waiting.token, waiting.granted_revision, waiting.slot) = (None, None, None);
            waiting.work_done = false;
        }
        LockDocument {
            token,
            slots,
            slot_owners: owners
                .into_iter()
                .map(|owner| Identity::new(owner?).ok())
                .collect(),
            holders: entries,
            queue,
            successes: successes
                .into_iter()
                .map(|(key, at)| Success {
                    key,
                    at: WallMillis(at),
                })
                .collect(),
            store_now: WallMillis(0),
        }
    })
}

fn join(slots: u32) -> impl Strategy<Value = LockOperation> {
    let slots = prop_oneof![8 => Just(slots), 1 => Just(0_u32), 1 => 1..4_u32];
    (
        1..=CLAIMS_MAX + 3,
        mode(),
        slots,
        (
            some_token(),
            prop_oneof![4 => Just(Token::ZERO), 1 => some_token()],
        ),
        prop::bool::ANY,
    )
        .prop_map(|(number, mode, slots, (seen, token_min), non_blocking)| {
            let mode = if slots > 0 { EntryMode::Slot } else { mode };
            let entry = NewEntry {
                slots,
                ..joining(number, mode)
            };
            LockOperation::Join {
                entry,
                seen,
                token_min,
                non_blocking,
            }
        })
}

pub(crate) fn create() -> impl Strategy<Value = LockOperation> {
    some_token().prop_map(|seen| LockOperation::Create { seen })
}

pub(crate) fn operation(slots: u32) -> impl Strategy<Value = LockOperation> {
    let number = || 1..=CLAIMS_MAX;
    let pairs = proptest::collection::vec((number(), 1..3_u16), 0..8);
    let me = prop::option::of((number(), 50..60_u16));
    let ending = prop::sample::select(vec![Ending::Expired, Ending::Broken]);
    let mine = || proptest::collection::vec(1..3_u16, 1..4);
    let min_hold = || (0..70_000_u64).prop_map(Duration::from_millis);
    prop_oneof![
        1 => create(),
        6 => join(slots),
        4 => (number(), mine(), some_token(), prop::option::of(min_hold())).prop_map(
            |(number, mine, seen, min_hold)| LockOperation::Renew {
                claim: claim(number),
                revision: revision(40),
                mine: mine.into_iter().map(revision).collect(),
                seen,
                min_hold,
            },
        ),
        3 => (number(), mine(), min_hold(), success()).prop_map(
            |(number, mine, min_hold, success)| LockOperation::Keep {
                claim: claim(number),
                revision: revision(40),
                mine: mine.into_iter().map(revision).collect(),
                min_hold,
                success,
            },
        ),
        4 => (number(), mine(), some_token(), success(), 0..2_u32).prop_map(
            |(number, mine, seen, success, slots)| LockOperation::Leave {
                claim: claim(number),
                mine: mine.into_iter().map(revision).collect(),
                seen,
                success,
                slots,
            },
        ),
        6 => (pairs, me, ending, some_token()).prop_map(|(pairs, me, ending, seen)| {
            let pair = |(number, changed)| EntryVersion {
                claim: claim(number),
                revision: revision(changed),
            };
            LockOperation::Evict {
                entries: pairs.into_iter().map(pair).collect(),
                me: me.map(|(number, new)| Writer {
                    claim: claim(number),
                    revision: revision(new),
                }),
                ending,
                seen,
            }
        }),
        2 => (proptest::collection::vec(number(), 0..8), some_token()).prop_map(
            |(numbers, seen)| LockOperation::Break {
                claims: numbers.into_iter().map(claim).collect(),
                seen,
            }
        ),
    ]
}
