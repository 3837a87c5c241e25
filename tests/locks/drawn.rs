//! Random locks and operations, from few ids so that many match.

use leasehold::election::{Identity, Token, WallMillis};
use leasehold::lock::{Ending, Entry, Joining, LockDocument, Mode, Operation, Seen, Writer};
use proptest::prelude::*;

use crate::fixture::{claim, entry, joining, revision, token};

/// Entries have the claims from 1 up to this; some joins have a higher one.
const CLAIMS_MAX: u16 = 9;

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![
        3 => Just(Mode::Exclusive),
        4 => Just(Mode::Shared),
        1 => Just(Mode::Slot),
    ]
}

fn some_token() -> impl Strategy<Value = Token> {
    prop_oneof![
        12 => (0..40_i64).prop_map(token),
        1 => Just(Token::MAX),
        1 => Just(token(i64::MAX - 1)),
    ]
}

/// A lock in which no claim occurs twice.
pub(crate) fn lock() -> impl Strategy<Value = LockDocument> {
    let granted = prop::option::of(1..3_u16);
    let slot = prop::option::of(0..4_u32);
    let one = (
        mode(),
        1..3_u16,
        prop::option::of(0..40_i64),
        0..5_i64,
        granted,
        slot,
    );
    let owner = prop::sample::select(vec![None, Some("a"), Some("b")]);
    let owners = proptest::collection::vec(owner, 0..4);
    let entries = proptest::collection::vec(one, 0..usize::from(CLAIMS_MAX));
    let slots = prop_oneof![3 => Just(0_u32), 2 => 1..4_u32];
    let drawn = (some_token(), slots, owners, entries, 0..4_usize);
    drawn.prop_map(|(token, slots, owners, drawn, holding)| {
        let mut entries: Vec<Entry> = drawn
            .into_iter()
            .zip(1..)
            .map(|((mode, changed, with, at, granted, slot), number)| Entry {
                mode: if slots > 0 { Mode::Slot } else { mode },
                revision: revision(changed),
                token: with.and_then(Token::new),
                granted_revision: granted.map(revision),
                slot: slot.filter(|_| slots > 0),
                acquired_at: WallMillis(0),
                renewed_at: WallMillis(at),
                ..entry(number, mode)
            })
            .collect();
        let mut queue = entries.split_off(holding.min(entries.len()));
        for waiting in &mut queue {
            (waiting.token, waiting.granted_revision, waiting.slot) = (None, None, None);
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
        }
    })
}

fn join(slots: u32) -> impl Strategy<Value = Operation> {
    let slots = prop_oneof![8 => Just(slots), 1 => Just(0_u32), 1 => 1..4_u32];
    (
        1..=CLAIMS_MAX + 3,
        mode(),
        slots,
        some_token(),
        prop::bool::ANY,
    )
        .prop_map(|(number, mode, slots, seen, non_blocking)| {
            let mode = if slots > 0 { Mode::Slot } else { mode };
            let entry = Joining {
                slots,
                ..joining(number, mode)
            };
            Operation::Join {
                entry,
                seen,
                non_blocking,
            }
        })
}

/// The only write that applies to a missing document.
pub(crate) fn create() -> impl Strategy<Value = Operation> {
    some_token().prop_map(|seen| Operation::Create { seen })
}

/// Any write, for a lock with this number of slots.
pub(crate) fn operation(slots: u32) -> impl Strategy<Value = Operation> {
    let number = || 1..=CLAIMS_MAX;
    let pairs = proptest::collection::vec((number(), 1..3_u16), 0..8);
    let me = prop::option::of((number(), 50..60_u16));
    let ending = prop::sample::select(vec![Ending::Expired, Ending::Broken]);
    let mine = proptest::collection::vec(1..3_u16, 1..4);
    prop_oneof![
        1 => create(),
        6 => join(slots),
        4 => (number(), mine, some_token()).prop_map(|(number, mine, seen)| Operation::Renew {
            claim: claim(number),
            revision: revision(40),
            mine: mine.into_iter().map(revision).collect(),
            seen,
        }),
        4 => (number(), some_token())
            .prop_map(|(number, seen)| Operation::Leave { claim: claim(number), seen }),
        6 => (pairs, me, ending, some_token()).prop_map(|(pairs, me, ending, seen)| {
            let pair = |(number, changed)| Seen {
                claim: claim(number),
                revision: revision(changed),
            };
            Operation::Evict {
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
            |(numbers, seen)| Operation::Break {
                claims: numbers.into_iter().map(claim).collect(),
                seen,
            }
        ),
    ]
}
