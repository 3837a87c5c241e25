//! Goal: the simulator's results apply to MongoDB, because a real server applies each write exactly
//! as the simulator's reference implementation does. The comparison covers holders and waiters,
//! tokens, revisions, `granted`, `next` and the history. Method: performs every kind of write on
//! random locks, with the shipped store.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use leasehold::election::{Claim, Identity};
use leasehold::lock::{FoundLock, Grant, LockDocument, LockOperation, LockOutcome};
use leasehold::store::mongo::lock::MongoLockStore;
use leasehold_reference::lock::{self as reference, By};
use leasehold_testbed::{StoredLease, run};
use mongodb::bson::{Bson, Document};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::drawn;
use crate::fixture::{NOW, document, shared_stage, store, stored, text, undated};

const CASES: u32 = 500;
/// Maximum number of passes over the cases. The test ends as soon as each kind of write has been
/// applied several times.
const RUNS_MAX: u32 = 5;

fn grant_texts(granted: &[(Claim, Option<Grant>)], after: &LockDocument) -> String {
    let text = |(claim, grant): &(Claim, Option<Grant>)| {
        let entry = after.holders.iter().find(|entry| entry.claim == *claim);
        let entry = entry.expect("the claim was granted");
        let slot = entry.slot.map_or(String::new(), |slot| format!("#{slot}"));
        let revision = entry.revision;
        let token = grant.map_or(String::new(), |grant| grant.token.to_string());
        format!("{claim}={token}@{revision}{slot}")
    };
    let texts: Vec<_> = granted.iter().map(text).collect();
    texts.join(" ")
}

#[derive(Debug, Clone, Copy)]
enum Written {
    InFull,
    /// Empty fields are absent. Numbers have the types that some shells write.
    InShort,
}

fn written(lock: &LockDocument, how: Written) -> Document {
    let mut document = document(lock);
    document.insert("granted", "before");
    if matches!(how, Written::InFull) {
        return document;
    }
    for list in ["holders", "queue", "history", "successes"] {
        if document.get_array(list).is_ok_and(Vec::is_empty) {
            document.remove(list);
        }
    }
    if lock.slots == 0 {
        document.remove("slots");
    }
    if let Ok(small) = i32::try_from(lock.token.get()) {
        document.insert("token", small);
    }
    document
}

fn outcome_undated(outcome: LockOutcome) -> LockOutcome {
    match outcome {
        LockOutcome::Applied(FoundLock::Lock(lock)) => {
            LockOutcome::Applied(FoundLock::Lock(undated(lock)))
        }
        other => other,
    }
}

/// Clears the remaining minimum hold of entries whose work has ended, because its value depends on
/// the server's clock.
fn without_rests(outcome: LockOutcome) -> LockOutcome {
    match outcome {
        LockOutcome::Applied(FoundLock::Lock(mut lock)) => {
            for entry in lock.holders.iter_mut().filter(|entry| entry.work_done) {
                entry.min_hold = Duration::ZERO;
            }
            LockOutcome::Applied(FoundLock::Lock(lock))
        }
        other => other,
    }
}

fn stored_rests(document: &Document) -> Vec<u128> {
    let empty = Vec::new();
    let holders = document.get_array("holders").unwrap_or(&empty);
    let holders = holders.iter().filter_map(Bson::as_document);
    let rest = |entry: &Document| entry.get_i64("at_least_ms").unwrap_or(0);
    let rests = holders.map(|entry| u128::try_from(rest(entry)).expect("not negative"));
    rests.collect()
}

async fn compare(
    store: &MongoLockStore,
    stored: &StoredLease,
    (lock, how): (Option<&LockDocument>, Written),
    operation: &LockOperation,
) -> bool {
    match lock {
        Some(lock) => stored.replace(&written(lock, how)).await,
        None => stored.delete().await,
    }
    let mut expected = lock.map_or(FoundLock::Missing, |lock| FoundLock::Lock(lock.clone()));
    let identity = Identity::new("a").expect("legal");
    let by = By {
        identity: &identity,
        at: NOW,
        store_now: NOW,
    };
    let performed = reference::apply(&mut expected, by, operation);
    let answer = store.perform(operation.clone()).await;
    assert_eq!(answer.failure, None);
    let shown = |outcome| without_rests(outcome_undated(outcome));
    let performs = without_rests(performed.outcome.clone());
    assert_eq!(shown(answer.outcome), performs);
    let read = store.perform(LockOperation::Read { confirm: true }).await;
    let expects = without_rests(outcome_undated(LockOutcome::Applied(expected.clone())));
    assert_eq!(shown(read.outcome), expects);
    let applied = matches!(performed.outcome, LockOutcome::Applied(_));
    if let (Some(_), FoundLock::Lock(after)) = (lock.filter(|_| applied), &expected) {
        let document = stored.get().await;
        let rests = after.holders.iter().map(|e| e.min_hold.as_millis());
        assert_eq!(stored_rests(&document), rests.collect::<Vec<_>>());
        let moved = !matches!(
            operation,
            LockOperation::Renew { .. } | LockOperation::Keep { .. }
        );
        let granted = match performed.granted.as_slice() {
            [] => "before".to_owned(),
            granted => grant_texts(granted, after),
        };
        assert_eq!(text(&document, "granted"), granted);
        if moved {
            let next = reference::next(after).map(|claim| claim.to_string());
            assert_eq!(text(&document, "next"), next.unwrap_or_default());
            // The server writes an int64, whatever type the field had before.
            assert!(document.get_i64("token").is_ok());
        }
        let ends = performed.ended.iter().map(|ended| {
            (
                ended.entry.token.map(leasehold::election::Token::get),
                ended.ending.as_str().to_owned(),
            )
        });
        assert_eq!(history(&document), ends.collect::<Vec<_>>());
    }
    applied
}

fn history(document: &Document) -> Vec<(Option<i64>, String)> {
    let empty = Vec::new();
    let entries = document.get_array("history").unwrap_or(&empty);
    let entries = entries.iter().filter_map(Bson::as_document);
    entries
        .map(|end| {
            assert_eq!(text(end, "identity"), "a");
            assert!(
                end.get_datetime("acquired_at").is_ok() && end.get_datetime("ended_at").is_ok()
            );
            (end.get_i64("token").ok(), text(end, "reason").to_owned())
        })
        .collect()
}

#[test]
fn a_server_applies_each_write_like_the_reference() {
    let (stage, store) = run(async {
        let stage = shared_stage().await;
        let store = store(&stage);
        (stage, store)
    });
    let stored = stored(&stage);
    let applied = Mutex::new(BTreeMap::new());
    let config = Config {
        cases: CASES,
        failure_persistence: None,
        ..Config::default()
    };
    let how = prop::sample::select(vec![Written::InFull, Written::InShort]);
    let on_lock = drawn::lock().prop_flat_map(|lock| {
        let operation = drawn::operation(lock.slots);
        (Just(Some(lock)), operation)
    });
    let on_nothing = prop_oneof![drawn::create(), drawn::operation(0)];
    let case = prop_oneof![
        20 => on_lock,
        1 => on_nothing.prop_map(|operation| (None, operation)),
    ];
    let cases = (case, how);
    let compared = |((lock, operation), how): ((Option<LockDocument>, LockOperation), Written)| {
        let matched = run(compare(&store, &stored, (lock.as_ref(), how), &operation));
        let mut applied = applied.lock().expect("no panic is caught");
        *applied.entry(operation.as_str()).or_insert(0) += usize::from(matched);
        Ok(())
    };
    // The comparison is meaningful only if each kind of write was applied several times. The first
    // pass nearly always suffices.
    let is_meaningful = || {
        let applied = applied.lock().expect("no panic is caught");
        applied.len() == 8 && applied.values().all(|times| *times > 2)
    };
    for _ in 0..RUNS_MAX {
        let outcome = TestRunner::new(config.clone()).run(&cases, compared);
        outcome.unwrap_or_else(|error| panic!("{error}"));
        if is_meaningful() {
            return;
        }
    }
    panic!("a kind of write was rarely applied: {applied:?}");
}
