//! Goal: an operator's command has no effect if the lease has changed since the operator read it.
//! The command cannot affect another leader, overwrite another operator's request, or change a
//! document that is not a lease. No command changes the revision.

use leasehold::election::{Identity, ResourceName};
use leasehold::randomness::KernelRandomness;
use leasehold::store::mongo::StoreOptions;
use leasehold::store::mongo::operators::{
    Acted, ActionId, ActionKind, Content, LeaseRecord, MongoCollection, OperatorAction, Scope,
    ViewEvent,
};
use leasehold_testbed::Stage;
use mongodb::bson::{Bson, Document, doc};

use crate::command::{LONG, command_with, name, run, shared_stage};

pub(crate) fn collection(stage: &Stage) -> MongoCollection {
    let identity = Identity::new("operator").expect("legal");
    let mut options = StoreOptions::new(stage.set().uri(), identity);
    options.database = stage.database().to_owned();
    options.collection = stage.collection().to_owned();
    MongoCollection::new(options)
}

pub(crate) async fn seen(collection: &MongoCollection, name: &ResourceName) -> LeaseRecord {
    let entry = collection.read(name.as_str()).await.expect("a reply");
    match entry.expect("it exists").content {
        Content::Lease(lease) => *lease,
        other => panic!("{other:?}"),
    }
}

/// Removes the fields that a renewal changes, because a renewal may still be applied after its
/// sender has stopped.
fn without_renewals(mut document: Document) -> Document {
    document.remove("revision");
    let holder = document.get_document_mut("holder").expect("a holder");
    holder.remove("renewed_at");
    document
}

pub(crate) fn action(kind: ActionKind) -> OperatorAction {
    OperatorAction {
        id: ActionId::random(&mut KernelRandomness),
        kind,
        by: "olga".to_owned(),
        reason: None,
    }
}

#[tokio::test]
async fn a_request_affects_only_the_leader_that_the_operator_saw() {
    let stage = shared_stage().await;
    let a = stage.candidate("a").leading(LONG).await;
    let lease = ResourceName::new(name(&stage).await).expect("legal");
    let collection = collection(&stage);
    let before = seen(&collection, &lease).await;
    a.term_and_exit(LONG).await;
    let b = stage.candidate("b").leading(LONG).await;
    b.stop();
    let document = without_renewals(stage.stored().get().await);
    let to = Identity::new("c").expect("legal");
    let reserve = std::time::Duration::from_secs(5);
    for kind in [ActionKind::StepDown, ActionKind::Transfer { to, reserve }] {
        let answer = collection.act(&lease, &before, &action(kind)).await;
        assert_eq!((answer.outcome, answer.failure), (Acted::Rejected, None));
    }
    assert_eq!(without_renewals(stage.stored().get().await), document);
    b.cont();
}

#[tokio::test]
async fn an_action_overwrites_no_other_action_and_changes_no_revision() {
    let stage = shared_stage().await;
    let a = stage.candidate("a").leading(LONG).await;
    let lease = ResourceName::new(name(&stage).await).expect("legal");
    let collection = collection(&stage);
    a.kill();
    let first = seen(&collection, &lease).await;
    for (kind, again) in [
        (ActionKind::Pause, Acted::Rejected),
        (ActionKind::Resume, Acted::Rejected),
        // The repeated request counts as one request.
        (ActionKind::StepDown, Acted::Applied(())),
    ] {
        let acted = collection.act(&lease, &first, &action(kind.clone())).await;
        assert_eq!(acted.outcome, Acted::Applied(()), "{kind:?}");
        let acted = collection.act(&lease, &first, &action(kind.clone())).await;
        assert_eq!(acted.outcome, again, "{kind:?}");
    }
    let requested = seen(&collection, &lease).await;
    stage
        .stored()
        .set(doc! { "request.by": "another operator" })
        .await;
    let cancel = collection
        .act(&lease, &requested, &action(ActionKind::Cancel))
        .await;
    assert_eq!(
        cancel.outcome,
        Acted::Rejected,
        "the request has been replaced"
    );
    let now = seen(&collection, &lease).await;
    assert_eq!(now.lease.revision, first.lease.revision);
    assert_eq!(now.lease.holder, first.lease.holder);
    stage.stored().set(doc! { "token": 9_i64 }).await;
    let pause = collection
        .act(&lease, &now, &action(ActionKind::Pause))
        .await;
    assert_eq!(pause.outcome, Acted::Rejected, "another token");
}

#[tokio::test]
async fn i11_no_action_is_written_into_a_document_of_another_shape() {
    let stage = shared_stage().await;
    let a = stage.candidate("a").leading(LONG).await;
    let lease = ResourceName::new(name(&stage).await).expect("legal");
    let collection = collection(&stage);
    a.kill();
    let lease_seen = seen(&collection, &lease).await;
    for foreign in [
        doc! { "schema": 2 },
        doc! { "kind": "lock" },
        doc! { "token": 1.0 },
        doc! { "history": Bson::Null },
        doc! { "actions": "none" },
    ] {
        let whole = stage.stored().get().await;
        stage.stored().set(foreign.clone()).await;
        let before = stage.stored().bytes().await;
        for kind in [ActionKind::StepDown, ActionKind::Pause] {
            let acted = collection.act(&lease, &lease_seen, &action(kind)).await;
            assert_eq!(acted.outcome, Acted::Rejected, "{foreign}");
        }
        assert_eq!(stage.stored().bytes().await, before, "{foreign}");
        stage.stored().replace(&whole).await;
    }
}

#[tokio::test]
async fn only_the_latest_actions_are_kept() {
    let stage = shared_stage().await;
    let a = stage.candidate("a").leading(LONG).await;
    let lease = ResourceName::new(name(&stage).await).expect("legal");
    let collection = collection(&stage);
    a.kill();
    let seen_first = seen(&collection, &lease).await;
    for _ in 0..13 {
        for kind in [ActionKind::Pause, ActionKind::Resume] {
            let acted = collection.act(&lease, &seen_first, &action(kind)).await;
            assert_eq!(acted.outcome, Acted::Applied(()));
        }
    }
    let actions = seen(&collection, &lease).await.actions;
    assert_eq!(actions.len(), 20);
    let last = actions.last().map(|action| action.action.as_str());
    assert_eq!(last, Some("resume"));
}

#[tokio::test]
async fn an_unanswered_read_is_reported_and_the_lease_is_not_deleted() {
    let stage = shared_stage().await;
    let a = stage.candidate("a").leading(LONG).await;
    let lease = ResourceName::new(name(&stage).await).expect("legal");
    a.kill();
    let proxy = stage.set().proxy();
    let identity = Identity::new("operator").expect("legal");
    let mut options = StoreOptions::new(stage.set().proxied_uri(&proxy), identity);
    options.database = stage.database().to_owned();
    options.collection = stage.collection().to_owned();
    let mut view = MongoCollection::new(options).follow(Scope::One(lease.clone()));
    while !matches!(view.next().await, Some(ViewEvent::Listed { .. })) {}
    proxy.hold_requests_containing("maxTimeMS");
    // The event for a large change omits the changed fields, so the view must read the document.
    stage
        .stored()
        .set(doc! { "large": "x".repeat(200_000) })
        .await;
    let reported = async {
        loop {
            match view.next().await {
                Some(ViewEvent::Failed(failure)) => return failure,
                Some(ViewEvent::Streaming | ViewEvent::Polling(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    };
    let failure = tokio::time::timeout(LONG, reported).await.expect("in time");
    assert_eq!(failure.kind, "no answer");
    proxy.resume();
    let listed = async {
        loop {
            match view.next().await {
                Some(ViewEvent::Listed { entries, .. }) if !entries.is_empty() => return,
                Some(ViewEvent::Removed { name }) => panic!("{name} was not deleted"),
                _ => {}
            }
        }
    };
    tokio::time::timeout(LONG, listed).await.expect("in time");
}

#[tokio::test]
async fn an_unanswered_write_becomes_unknown_in_bounded_time() {
    let stage = shared_stage().await;
    let a = stage.candidate("a").leading(LONG).await;
    let lease = name(&stage).await;
    let proxy = stage.set().proxy();
    proxy.hold_requests_containing("findAndModify");
    let uri = stage.set().proxied_uri(&proxy);
    let arguments = [
        "step-down",
        &lease,
        "--timeout",
        "5s",
        "--mongodb-operation-timeout",
        "1s",
    ];
    let answer = run(command_with(&uri, &stage, &arguments)).await;
    answer.expect(69, &["the outcome is not known", "leasehold describe"]);
    assert!(a.leads());
}
