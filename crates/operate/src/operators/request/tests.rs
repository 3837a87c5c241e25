//! Goal: one case for each rule that decides on a request or follows its progress.

mod messages;

use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document, Uuid, doc};

use super::progress::Progress;
use super::*;
use leasehold_core::election::{Randomness, Token, WallMillis};
use leasehold_mongodb::store::mongo::operators::{CollectionEntry, Content};

fn uuid(number: u8) -> Bson {
    Uuid::from_bytes([number; 16]).into()
}

/// Returns a holder with this claim number; its token is the number plus 6.
fn holder(identity: &str, claim: u8) -> Document {
    doc! {
        "identity": identity, "session": uuid(claim), "claim": uuid(claim),
        "token": i64::from(claim) + 6, "acquired_at": DateTime::from_millis(1),
        "renewed_at": DateTime::from_millis(2), "lease_duration_ms": 24_000_i64,
    }
}

/// Returns a lease with token 7 and holder `a`, with these changes.
fn lease(changes: Document) -> Box<LeaseRecord> {
    let mut document = doc! {
        "_id": "orders", "schema": 1, "kind": "lease", "token": 7_i64, "revision": uuid(1),
        "holder": holder("a", 1), "paused": false, "request": Bson::Null,
        "reserved_for": Bson::Null, "history": [],
    };
    document.extend(changes);
    match CollectionEntry::of(&document).expect("a name").content {
        Content::Lease(lease) => lease,
        other => panic!("{other:?}"),
    }
}

fn free(changes: Document) -> Document {
    let mut free = doc! { "holder": Bson::Null, "revision": uuid(2) };
    free.extend(changes);
    free
}

fn requested(kind: &str, to: Option<&str>, token: i64) -> Document {
    let mut request = doc! { "kind": kind, "token": token, "by": "ops" };
    request.extend(to.map(|to| doc! { "to": to }).unwrap_or_default());
    doc! { "request": request }
}

/// Returns an action as stored in the document. The tests' own request is action 1.
fn action(number: u8, kind: &str, to: Option<&str>, token: i64) -> Bson {
    let mut action = doc! { "id": uuid(number), "action": kind, "token": token, "by": "ops" };
    action.extend(to.map(|to| doc! { "to": to }).unwrap_or_default());
    Bson::from(action)
}

fn actions(later: impl IntoIterator<Item = Bson>) -> Document {
    let own = action(1, "own", None, 7);
    let actions: Vec<_> = std::iter::once(own).chain(later).collect();
    doc! { "actions": actions }
}

fn all(parts: impl IntoIterator<Item = Document>) -> Document {
    parts.into_iter().flatten().collect()
}

fn orders() -> ResourceName {
    ResourceName::new("orders").expect("legal")
}

fn transfer(to: &str) -> ActionKind {
    ActionKind::Transfer {
        to: Identity::new(to).expect("legal"),
        reserve: Duration::from_secs(5),
    }
}

fn at(seconds: u64) -> BootTime {
    BootTime::from_nanos((100 + seconds) * 1_000_000_000)
}

fn shown(outcome: &CommandOutcome) -> String {
    format!("{:?}: {}", outcome.result, outcome.message)
}

#[test]
fn a_decision_depends_on_the_lease_as_it_is() {
    use ActionKind::{Cancel, Pause, Resume, StepDown};
    let paused = || doc! { "paused": true };
    let raised = || doc! { "token": 9_i64 };
    let cases = [
        (StepDown, doc! {}, "write"),
        (
            StepDown,
            free(doc! {}),
            "Refused: no candidate leads; nothing written; leasehold describe orders shows the lease",
        ),
        (StepDown, free(paused()), "Refused: paused, so no"),
        (
            StepDown,
            paused(),
            "Refused: paused, so no candidate takes over from a; nothing written; to fix: leasehold resume orders",
        ),
        (StepDown, requested("step_down", None, 7), "await"),
        (StepDown, requested("step_down", None, 6), "write"),
        (StepDown, requested("transfer", Some("b"), 7), "write"),
        (
            StepDown,
            all([raised(), requested("step_down", None, 7)]),
            "await",
        ),
        (transfer("b"), doc! {}, "write"),
        (transfer("a"), doc! {}, "observe a"),
        (
            transfer("b"),
            free(doc! {}),
            "Refused: no candidate leads, so",
        ),
        (transfer("b"), free(paused()), "Refused: paused"),
        (transfer("b"), requested("transfer", Some("b"), 7), "await"),
        (transfer("b"), requested("transfer", Some("c"), 7), "write"),
        (Pause, doc! {}, "write"),
        (Pause, free(doc! {}), "write"),
        (Pause, paused(), "await"),
        (Pause, free(paused()), "Already: paused already"),
        (Resume, doc! {}, "Already: it is not paused"),
        (Resume, free(paused()), "write"),
        (Cancel, doc! {}, "Already: no request to cancel"),
        (Cancel, requested("step_down", None, 6), "write"),
    ];
    for (kind, changes, expected) in cases {
        let text = match decide(&orders(), &kind, None, &lease(changes.clone())) {
            RequestDecision::Write => "write".to_owned(),
            RequestDecision::Await => "await".to_owned(),
            RequestDecision::Observe(holder) => format!("observe {holder}"),
            RequestDecision::Answer(outcome) => shown(&outcome),
        };
        assert!(text.starts_with(expected), "{kind:?}, {changes}: {text}");
    }
    let seen = |token| decide(&orders(), &StepDown, Token::new(token), &lease(doc! {}));
    assert!(matches!(seen(7), RequestDecision::Write));
    assert!(matches!(seen(6), RequestDecision::Answer(_)));
}

#[test]
fn a_transfer_to_a_holder_that_was_asked_to_step_down_is_refused() {
    let cases = [
        (doc! {}, "Already: a holds it already"),
        (
            requested("step_down", None, 6),
            "Already: a holds it already",
        ),
        (
            requested("transfer", Some("a"), 7),
            "Already: a holds it already",
        ),
        (
            requested("step_down", None, 7),
            "Refused: a holds the lease, but was asked to step down: step-down of token 7 requested by ops; nothing written; wait \
             for the next leader, or withdraw the request: leasehold cancel orders",
        ),
    ];
    let a = Identity::new("a").expect("legal");
    for (changes, expected) in cases {
        let text = shown(&held_by_target(
            &orders(),
            &transfer("a"),
            &lease(changes),
            &a,
        ));
        assert!(text.starts_with(expected), "{text}");
    }
}

struct One;

impl Randomness for One {
    fn bits(&mut self) -> u128 {
        u128::from_be_bytes([1; 16])
    }
}

/// Returns the progress of a request that was sent at 0 s, with the lease `before`.
fn begun(kind: &ActionKind, before: Document) -> Progress {
    Progress::new(
        kind,
        &lease(before),
        at(0),
        Some(ActionId::random(&mut One)),
    )
}

#[test]
fn the_progress_depends_on_the_changes_of_the_lease() {
    use ActionKind::{Cancel, Pause, Resume, StepDown};
    let own = || actions([]);
    let paused = |changes| all([doc! { "paused": true }, own(), changes]);
    let stands = |kind, to| all([own(), requested(kind, to, 7)]);
    let b_leads = || all([own(), doc! { "holder": holder("b", 2), "token": 8_i64 }]);
    let renewed = || doc! { "revision": uuid(3) };
    let no_change = || doc! {};
    let ended = |reason: &str| {
        let past = doc! { "token": 7_i64, "identity": "a", "reason": reason };
        all([b_leads(), doc! { "history": [past] }])
    };
    let reserved = |to: &str| {
        let reserved_for = doc! { "identity": to, "for_ms": 5_000_i64 };
        free(all([own(), doc! { "reserved_for": reserved_for }]))
    };
    // Each case has the request, the changes to the lease before and after it, and the outcome.
    let cases = [
        (StepDown, no_change(), vec![doc! {}], "pending"),
        // An event without the request is older than the request.
        (StepDown, no_change(), vec![free(doc! {})], "pending"),
        (
            StepDown,
            no_change(),
            vec![stands("step_down", None)],
            "pending",
        ),
        (StepDown, no_change(), vec![free(own())], "pending"),
        (
            StepDown,
            no_change(),
            vec![free(own()), b_leads()],
            "Done: b leads with token 8",
        ),
        // The holder had crashed, and acquires the lease again when it restarts.
        (
            StepDown,
            no_change(),
            vec![all([
                own(),
                doc! {
                    "holder": holder("a", 2), "token": 8_i64,
                    "history": [{ "token": 7_i64, "identity": "a", "reason": "deadline" }],
                },
            ])],
            "Superseded: a leads with token 8: the holder acquired the lease again instead of stepping down",
        ),
        (
            StepDown,
            no_change(),
            vec![all([
                own(),
                doc! {
                    "holder": holder("a", 2), "token": 8_i64,
                    "history": [{ "token": 7_i64, "identity": "a", "reason": "requested" }],
                },
            ])],
            "Done: a leads with token 8",
        ),
        (
            StepDown,
            no_change(),
            vec![paused(free(actions([action(2, "pause", None, 7)])))],
            "Superseded: in the meantime, it was paused by ops, so no candidate leads",
        ),
        (
            StepDown,
            no_change(),
            vec![own()],
            "Superseded: in the meantime, the request was withdrawn",
        ),
        (
            StepDown,
            no_change(),
            vec![actions([action(2, "cancel", None, 7)])],
            "Superseded: ops cancelled the request",
        ),
        (
            StepDown,
            no_change(),
            vec![all([
                actions([action(2, "transfer", Some("c"), 7)]),
                requested("transfer", Some("c"), 7),
            ])],
            "Superseded: ops replaced the request with a transfer to c",
        ),
        (
            StepDown,
            no_change(),
            vec![all([own(), requested("transfer", Some("c"), 7)])],
            "Superseded: another request replaced it: transfer of token 7 to c requested by ops",
        ),
        (
            transfer("b"),
            no_change(),
            vec![free(own()), b_leads()],
            "Done: b leads with token 8",
        ),
        (
            transfer("c"),
            no_change(),
            vec![reserved("c"), ended("transferred")],
            "Superseded: b leads with token 8, since c did not acquire it in time",
        ),
        // The test omits the event that contains the reservation.
        (
            transfer("c"),
            no_change(),
            vec![ended("transferred")],
            "Superseded: b leads with token 8, since c did not acquire it in time",
        ),
        (
            transfer("c"),
            requested("transfer", Some("b"), 7),
            vec![ended("transferred")],
            "Superseded: b leads with token 8, not c",
        ),
        (
            transfer("c"),
            requested("transfer", Some("b"), 7),
            vec![reserved("b"), ended("transferred")],
            "Superseded: b leads with token 8: a was already applying an earlier transfer to b",
        ),
        (
            transfer("c"),
            requested("step_down", None, 7),
            vec![free(own()), ended("requested")],
            "Superseded: b leads with token 8: a was already applying an earlier step-down",
        ),
        (
            transfer("c"),
            no_change(),
            vec![ended("shutdown")],
            "Superseded: b leads with token 8: a did not apply the transfer; its leadership ended with the reason shutdown",
        ),
        (
            transfer("c"),
            no_change(),
            vec![ended("took_over")],
            "Superseded: b leads with token 8: a did not apply the transfer; its leadership ended with the reason expired",
        ),
        (
            transfer("c"),
            no_change(),
            vec![free(own()), b_leads()],
            "Superseded: b leads with token 8, not c",
        ),
        // The test omits the event that contains the replacement.
        (
            transfer("c"),
            no_change(),
            vec![all([
                b_leads(),
                actions([action(2, "transfer", Some("b"), 7)]),
            ])],
            "Superseded: ops replaced the request with a transfer to b; b leads with token 8",
        ),
        // The cancelled request was addressed to the next leader.
        (
            transfer("c"),
            no_change(),
            vec![all([
                b_leads(),
                actions([
                    action(2, "step_down", None, 8),
                    action(3, "cancel", None, 8),
                ]),
            ])],
            "Superseded: b leads with token 8, not c",
        ),
        (Pause, no_change(), vec![paused(doc! {})], "pending"),
        (
            Pause,
            no_change(),
            vec![paused(free(doc! {}))],
            "Done: paused; a stepped down",
        ),
        (
            Pause,
            free(doc! {}),
            vec![paused(free(doc! {}))],
            "Done: paused; nobody led",
        ),
        (
            Pause,
            no_change(),
            vec![actions([action(2, "resume", None, 7)])],
            "Superseded: in the meantime, it was resumed by ops",
        ),
        (Resume, free(doc! {}), vec![free(own())], "pending"),
        (
            Resume,
            free(doc! {}),
            vec![b_leads()],
            "Done: b leads with token 8",
        ),
        // A holder that steps down for the pause renews until it releases the lease.
        (Resume, no_change(), vec![own()], "pending"),
        (
            Resume,
            no_change(),
            vec![all([own(), renewed()])],
            "pending",
        ),
        (
            Resume,
            no_change(),
            vec![all([own(), renewed()]), free(own()), b_leads()],
            "Done: b leads with token 8",
        ),
        (
            Resume,
            free(doc! {}),
            vec![free(all([
                doc! { "paused": true },
                actions([action(2, "pause", None, 7)]),
            ]))],
            "Superseded: in the meantime, it was paused again by ops",
        ),
        (
            Cancel,
            requested("step_down", None, 6),
            // The outcome is certain without an observed change.
            vec![requested("step_down", None, 6)],
            "Done: request withdrawn; it had no effect",
        ),
    ];
    for (kind, before, seen, expected) in cases {
        let mut progress = begun(&kind, before);
        let mut text = "pending".to_owned();
        for changes in &seen {
            if let Some(outcome) = progress.observe(Some(&lease(changes.clone())), at(1)) {
                text = shown(&outcome);
            }
        }
        assert!(text.starts_with(expected), "{kind:?}, {seen:?}: {text}");
    }
    let outcome = begun(&Pause, doc! {})
        .observe(None, at(1))
        .expect("an outcome");
    assert_eq!(outcome.result, RequestResult::Deleted);
}

#[test]
fn a_resume_is_done_once_the_holder_has_answered_that_it_leads() {
    let call = |number: u8, who: &str, token: Option<i64>| {
        let mut present = doc! { "identity": who, "version": "0.1.0" };
        present.extend(
            token
                .map(|token| doc! { "token": token })
                .unwrap_or_default(),
        );
        doc! { "roll_call": { "id": uuid(number), "present": [present] } }
    };
    let pending = "pending";
    // The command's own roll call is 1. An answer to an earlier roll call may be older than the
    // pause.
    for (calls, expected) in [
        (
            vec![call(1, "a", Some(7))],
            "Done: a still leads with token 7, ",
        ),
        (vec![call(1, "a", None)], pending),
        (vec![call(1, "b", Some(7))], pending),
        (vec![call(1, "a", Some(6))], pending),
        (vec![call(5, "a", Some(7))], pending),
        (
            vec![call(1, "b", None), call(5, "a", Some(7))],
            "Done: a still leads with token 7, ",
        ),
    ] {
        let mut progress = begun(&ActionKind::Resume, doc! { "paused": true });
        progress.roll_call = Some(ActionId::random(&mut One));
        let mut text = pending.to_owned();
        for changes in &calls {
            let seen = lease(all([actions([]), changes.clone()]));
            if let Some(outcome) = progress.observe(Some(&seen), at(1)) {
                text = shown(&outcome);
            }
        }
        assert!(text.starts_with(expected), "{calls:?}: {text}");
    }
}

#[test]
fn a_pause_of_an_unresponsive_holder_waits_for_its_lease_duration_of_sight() {
    let done = |outcome: Option<_>| outcome.is_some();
    let mut seen = begun(&ActionKind::Pause, doc! {});
    assert_eq!(seen.expires(), Some(at(24)));
    assert!(!done(seen.tick(at(23))) && done(seen.tick(at(24))));
    let mut blind = begun(&ActionKind::Pause, doc! {});
    blind.lose_sight(at(20));
    assert!(!done(blind.tick(at(24))) && !done(blind.tick(at(43))));
    assert!(done(blind.tick(at(44))));
    let mut renewed = begun(&ActionKind::Pause, doc! {});
    let paused = doc! { "paused": true, "revision": uuid(3) };
    let now = lease(all([actions([]), paused]));
    assert!(!done(renewed.observe(Some(&now), at(10))));
    assert!(!done(renewed.tick(at(33))) && done(renewed.tick(at(34))));
}
