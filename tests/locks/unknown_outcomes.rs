//! Goal: a call whose outcome is unknown never counts as applied (I7), and the store classifies all
//! other outcomes as the protocol requires. Method: uses the fail point `failCommand`, a killed
//! primary, and an unreachable set.

use std::sync::Arc;
use std::time::Duration;

use leasehold::lock::{EntryMode, FoundLock, LockOperation, LockOutcome};
use leasehold::store::mongo::lock::MongoLockStore;
use leasehold_testbed::{ReplicaSet, Stage};
use mongodb::bson::{Document, doc};

use crate::fixture::{
    NAME, applied, eventually, join, leave, leave_by, numbers, read, renew, stage_on,
    store_options, store_over, timings, token,
};

/// The server's error code if a majority of members did not acknowledge a write in time.
const WRITE_CONCERN_FAILED: i32 = 64;

fn hasty(stage: &Stage) -> MongoLockStore {
    let mut options = store_options(stage, "a");
    options.timings = timings(Duration::from_secs(2));
    store_over(options, NAME).0
}

async fn fail_once(set: &ReplicaSet, how: Document) {
    let of_a = (set.primary().await, "leasehold/a");
    set.fail_commands_of(of_a, &["findAndModify"], doc! { "times": 1 }, how)
        .await;
}

#[tokio::test]
async fn i7_a_write_that_was_applied_but_not_acknowledged_is_unknown() {
    let set = Arc::new(ReplicaSet::builder().members(1).start().await);
    let stage = stage_on(&set);
    let store = hasty(&stage);
    applied(&store, LockOperation::Create { seen: token(0) }).await;
    let concern = doc! { "code": WRITE_CONCERN_FAILED, "errmsg": "planted" };
    let failures = [
        (
            doc! { "writeConcernError": concern },
            Some(WRITE_CONCERN_FAILED),
        ),
        (doc! { "closeConnection": true }, None),
        (doc! { "errorCode": 10107 }, Some(10107)),
    ];
    for (number, (how, code)) in (1_u16..).zip(failures) {
        fail_once(&set, how.clone()).await;
        let answer = store.perform(join(number, EntryMode::Exclusive)).await;
        assert_eq!(answer.outcome, LockOutcome::Unknown, "{how}");
        let failure = answer.failure.expect("a text for humans");
        assert_eq!(failure.code, code, "{how}: {failure}");
        // Repeating the join with an equal claim must not append a second entry, regardless of the
        // first outcome.
        let again = store
            .perform(join(number, EntryMode::Exclusive))
            .await
            .outcome;
        assert!(matches!(
            again,
            LockOutcome::Applied(_) | LockOutcome::Rejected
        ));
        let lock = read(&store).await;
        assert_eq!(numbers(&lock.holders), [number], "{how}");
        assert_eq!(lock.queue, []);
        applied(&store, leave(number)).await;
    }
}

/// A cloned virtual machine and its original share a claim, but write different revisions.
#[tokio::test]
async fn a_leave_does_not_remove_the_entry_that_a_clone_has_renewed() {
    let set = Arc::new(ReplicaSet::start().await);
    let stage = stage_on(&set);
    let store = hasty(&stage);
    applied(&store, LockOperation::Create { seen: token(0) }).await;
    applied(&store, join(1, EntryMode::Exclusive)).await;
    applied(&store, join(2, EntryMode::Exclusive)).await;
    applied(&store, renew(1, 60)).await;
    let by_twin = store.perform(leave_by(1, [1, 61])).await;
    assert_eq!(by_twin.outcome, LockOutcome::Rejected);
    let lock = read(&store).await;
    assert_eq!(
        (numbers(&lock.holders), numbers(&lock.queue)),
        (vec![1], vec![2])
    );
    applied(&store, leave_by(1, [1, 60])).await;
    assert_eq!(numbers(&read(&store).await.holders), [2]);
}

#[tokio::test]
async fn i7_without_a_majority_the_outcome_of_a_write_is_unknown() {
    let set = Arc::new(ReplicaSet::start().await);
    let stage = stage_on(&set);
    let store = hasty(&stage);
    applied(&store, LockOperation::Create { seen: token(0) }).await;
    let primary = set.primary().await;
    let others: Vec<_> = (0..3).filter(|member| *member != primary).collect();
    for member in &others {
        set.stop(*member);
    }
    let answer = store.perform(join(1, EntryMode::Exclusive)).await;
    assert_eq!(answer.outcome, LockOutcome::Unknown, "{:?}", answer.failure);
    for member in &others {
        set.cont(*member);
    }
    // A confirmed read resolves the outcome as soon as there is a majority again.
    eventually("a read succeeds", async || {
        let read = store.perform(LockOperation::Read { confirm: true }).await;
        matches!(read.outcome, LockOutcome::Applied(FoundLock::Lock(_)))
    })
    .await;
}

#[tokio::test]
async fn after_a_kill_of_the_primary_every_acknowledged_write_survives() {
    let set = Arc::new(ReplicaSet::start().await);
    let stage = stage_on(&set);
    let store = hasty(&stage);
    applied(&store, LockOperation::Create { seen: token(0) }).await;
    applied(&store, join(1, EntryMode::Exclusive)).await;
    applied(&store, join(2, EntryMode::Exclusive)).await;
    set.kill(set.primary().await);
    let mut revision = 100;
    let mut outcomes = Vec::new();
    eventually("a renewal is acknowledged again", async || {
        revision += 1;
        let mine = (101..=revision).chain([1]).map(crate::fixture::revision);
        let renewal = LockOperation::Renew {
            claim: crate::fixture::claim(1),
            revision: crate::fixture::revision(revision),
            mine: mine.collect(),
            seen: token(0),
            min_hold: None,
        };
        outcomes.push(store.perform(renewal).await.outcome);
        matches!(outcomes.last(), Some(LockOutcome::Applied(_)))
    })
    .await;
    // A rejection would mean that the election lost the acknowledged join.
    assert!(!outcomes.contains(&LockOutcome::Rejected), "{outcomes:?}");
    let lock = read(&store).await;
    assert_eq!(
        (numbers(&lock.holders), numbers(&lock.queue)),
        (vec![1], vec![2])
    );
    assert_eq!(lock.token, token(1));
}

#[tokio::test]
async fn an_unsent_call_fails_and_a_second_create_is_rejected() {
    let set = Arc::new(ReplicaSet::builder().members(1).start().await);
    let stage = stage_on(&set);
    let store = hasty(&stage);
    applied(&store, LockOperation::Create { seen: token(5) }).await;
    let again = store
        .perform(LockOperation::Create { seen: token(9) })
        .await;
    assert_eq!(
        (again.outcome, again.failure),
        (LockOutcome::Rejected, None)
    );
    assert_eq!(read(&store).await.token, token(5));
    let mut options = store_options(&stage, "a");
    options.timings = timings(Duration::from_millis(300));
    options.uri = Arc::new(|| Ok("mongodb://127.0.0.1:1/".to_owned()));
    let (nowhere, _) = store_over(options, NAME);
    let answer = nowhere.perform(renew(1, 10)).await;
    assert_eq!(answer.outcome, LockOutcome::Failed, "{:?}", answer.failure);
}
