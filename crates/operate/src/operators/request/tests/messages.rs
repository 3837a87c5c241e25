//! Goal: a message about an unfinished request claims only what the command knows.

use super::*;
use crate::operators::roll_call::Roll;
use leasehold_host::exit;

#[test]
fn a_request_under_way_says_no_more_than_was_seen() {
    let message = |progress: &Progress, seconds| {
        // By the holder's clock, its last write was 1 s before the request.
        let wall = WallMillis(i64::try_from(1_002 + 1_000 * seconds).expect("small"));
        let waited = Duration::from_secs(30);
        let roll = Roll::Answered(Vec::new());
        let outcome = progress.under_way(waited, (at(seconds), wall), Some(&roll));
        assert_eq!(
            (outcome.result, outcome.code()),
            (RequestResult::UnderWay, exit::UNDER_WAY)
        );
        outcome.message
    };
    let mut progress = begun(&ActionKind::StepDown, doc! {});
    let holds = "a still holds the lease after 30s; last renewal 5s ago by the holder's clock";
    assert!(message(&progress, 4).contains(holds));
    for (seconds, text) in [
        (
            7,
            "a is late; last renewal 8s ago by the holder's clock; others take over after watching for 24s; no candidate",
        ),
        (
            23,
            "a is silent; last renewal 24s ago by the holder's clock; others take over after watching for 24s; no candidate",
        ),
        (
            24,
            "a is expired; last renewal 25s ago by the holder's clock; others take over after watching for 24s; no",
        ),
    ] {
        let message = message(&progress, seconds);
        assert!(
            message.starts_with("no step-down within 30s: "),
            "{message}"
        );
        assert!(message.contains(text), "{message}");
        assert!(
            message.ends_with("the request stays in case a recovers; the next leader removes it")
        );
    }
    progress.lose_sight(at(23));
    let blind = message(&progress, 30);
    assert!(blind.contains("cannot be read, so") && !blind.contains("by the holder's clock"));
    let standing = all([actions([]), requested("step_down", None, 7)]);
    let pending = progress.observe(Some(&lease(standing)), at(31)).is_none();
    assert!(pending);
    let again = message(&progress, 32);
    assert!(again.contains("a is unknown; no renewal yet, 1"), "{again}");
    let released = lease(free(actions([])));
    assert!(progress.observe(Some(&released), at(33)).is_none());
    assert!(message(&progress, 34).ends_with(
        "a stepped down; no candidate has acquired the lease within 30s; no other candidate answers; a may lead again in 23s"
    ));
    let mut resumed = begun(&ActionKind::Resume, doc! {});
    let renewed = all([actions([]), doc! { "revision": uuid(3) }]);
    assert!(resumed.observe(Some(&lease(renewed)), at(29)).is_none());
    assert!(message(&resumed, 30).starts_with(
        "resumed; a still holds the lease, and may be stepping down for the earlier pause; no"
    ));
    let resumed = begun(&ActionKind::Resume, free(doc! {}));
    assert!(
        message(&resumed, 30).contains("resumed; no candidate has acquired the lease within 30s")
    );
}

#[test]
fn an_interrupted_request_says_what_is_known_and_how_to_withdraw_it() {
    let name = ResourceName::new("orders").expect("legal");
    let recorded = || Stage::Recorded(Identity::new("a").ok());
    for (stage, kind, part) in [
        (Stage::Deciding, ActionKind::StepDown, "nothing written"),
        (
            Stage::Writing,
            ActionKind::StepDown,
            "may have been recorded",
        ),
        (Stage::Writing, ActionKind::Pause, "may have been written"),
        (
            recorded(),
            ActionKind::StepDown,
            "leasehold cancel orders withdraws it",
        ),
        (
            recorded(),
            ActionKind::Pause,
            "pause requested; a has not stepped down; to undo: leasehold resume orders",
        ),
        (
            Stage::SteppedDown,
            ActionKind::Pause,
            "paused; to undo: leasehold resume orders",
        ),
        (recorded(), ActionKind::Resume, "leasehold pause orders"),
        (Stage::SteppedDown, transfer("b"), "cannot be withdrawn"),
        (recorded(), ActionKind::Cancel, "request withdrawn"),
    ] {
        let text = interrupted(&stage, &kind, &name);
        assert!(text.contains(part), "{stage:?}, {kind:?}: {text}");
    }
}

#[test]
fn the_first_answer_to_a_request_names_a_late_holder() {
    let wall = WallMillis(1_000_000_000);
    let silence = crate::operators::observed::Silence::new(None, at(0));
    let ago = |seconds: i64| {
        let renewed_at = WallMillis(wall.0 - 1_000 * seconds);
        Evidence::new(silence, renewed_at, Duration::from_secs(24), at(0), wall)
    };
    let before = lease(doc! {});
    let late = "; a is late; last renewal 18s ago by the holder's clock; others take over after watching for 24s";
    for kind in [ActionKind::Pause, ActionKind::StepDown] {
        let said = unapplied(&kind, &before, Some(&ago(18)), at(0));
        assert_eq!(said, late);
    }
    assert!(ago(18).is_doubtful() && !ago(1).is_doubtful());
    let said = unapplied(&ActionKind::Pause, &before, None, at(0));
    assert_eq!(said, "; a has not stepped down");
    let before = lease(requested("step_down", None, 7));
    for (seconds, effect) in [
        (18, "the holder may have begun to apply it; a is late; "),
        (60, "a has not applied it; a is silent; "),
    ] {
        let mut progress = Progress::new(&ActionKind::Cancel, &before, at(0), None);
        progress.doubt = Some(ago(seconds));
        let outcome = progress.observe(Some(&before), at(0)).expect("an outcome");
        let expected = format!("request withdrawn; {effect}");
        assert!(
            outcome.message.starts_with(&expected),
            "{}",
            outcome.message
        );
    }
}
