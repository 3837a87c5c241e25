//! A follower does not trust an open stream indefinitely. The follower also reads the document,
//! reopens a stream that may be stale, and does not treat a late reply as newer than an event
//! (*Change streams* in `docs/protocol.md`).

use std::time::Duration;

use super::{Violation, explain, require, violation, with};
use crate::election::{Revision, Token};

/// A stream must report each change within this time, which is far above the delay of an event.
const REPORTED_WITHIN: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) silent: Duration,
    pub(crate) silent_max: Duration,
    pub(crate) unheard: Duration,
    pub(crate) unheard_max: Duration,
    pub(crate) held: bool,
    /// The longest interval between reads for a follower of hints or of a late stream.
    pub(crate) unread_max: Option<Duration>,
}

pub(crate) fn check_asked(asked: Asked) -> Option<Violation> {
    let lapsed = asked.silent >= asked.silent_max;
    let unheard = asked.held && asked.unheard >= asked.unheard_max;
    let unread = asked.unread_max.is_some_and(|max| asked.silent > max);
    require(
        !(lapsed || unheard || unread),
        "streams are checked",
        &asked,
    )
}

/// The revision that the follower considers stored, before and after a reply that is older than an
/// earlier event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Late {
    pub(crate) before: Option<Revision>,
    pub(crate) reply: Option<Revision>,
    pub(crate) after: Option<Revision>,
}

pub(crate) fn check_late(late: Late) -> Option<Violation> {
    let believed = late.before != late.after && late.after == late.reply;
    require(!believed, "late replies", &late)
}

/// Checks that the stream was reopened after a new primary or a rejected takeover.
pub(crate) fn check_reopening(owed: bool) -> Option<Violation> {
    explain(!owed, "streams are checked", || "not reopened".to_owned())
}

/// Checks that the process applies an event only to a document that was shown since the stream was
/// opened, because an event contains only changes.
pub(crate) fn check_events(of_a_document_before: bool) -> Option<Violation> {
    let evidence = "an event was applied to a document that was read before the stream was opened";
    explain(!of_a_document_before, "streams are checked", || {
        evidence.to_owned()
    })
}

/// The state of a follower that has read since it opened its stream and has handled every event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Followed {
    pub(crate) known: Option<Token>,
    pub(crate) stored: Token,
    pub(crate) since: Duration,
}

/// Checks that the stream reports each acquisition, or that the read after the opening shows the
/// acquisition.
pub(crate) fn check_followed(followed: Followed) -> Option<Violation> {
    let late = followed.known < Some(followed.stored) && followed.since > REPORTED_WITHIN;
    require(!late, "streams are complete", &followed)
}

pub(crate) fn check_peace(stale: Option<usize>) -> Option<Violation> {
    let process = stale?;
    let evidence = format!("p{process} still follows a stale stream");
    violation("streams are checked", evidence)
}

#[test]
fn timely_reads_are_in_order() {
    let asked = Asked {
        silent: Duration::from_secs(23),
        silent_max: Duration::from_secs(24),
        unheard: Duration::from_secs(5),
        unheard_max: Duration::from_secs(6),
        held: true,
        unread_max: None,
    };
    assert_eq!(check_asked(asked), None);
    let silent = with(asked, |it| it.silent = it.silent_max);
    assert!(check_asked(silent).is_some());
    let unheard = with(asked, |it| it.unheard = it.unheard_max);
    assert!(check_asked(unheard).is_some());
    assert_eq!(check_asked(with(unheard, |it| it.held = false)), None);
    let unread = |max| with(asked, |it| it.unread_max = Some(Duration::from_secs(max)));
    assert_eq!(check_asked(unread(23)), None);
    assert!(check_asked(unread(22)).is_some());
}

#[test]
fn an_acquisition_that_a_follower_was_not_shown_is_found() {
    let [six, seven] = [6, 7].map(|n| Token::new(n).expect("positive"));
    let followed = |known, millis| Followed {
        known,
        stored: seven,
        since: Duration::from_millis(millis),
    };
    assert_eq!(check_followed(followed(Some(seven), 9_000)), None);
    assert_eq!(check_followed(followed(Some(six), 1_000)), None);
    assert!(check_followed(followed(Some(six), 1_001)).is_some());
    assert!(check_followed(followed(None, 1_001)).is_some());
}

#[test]
fn a_late_reply_that_replaces_what_is_known_is_found() {
    let [a, b] = [1, 2].map(|n| Some(Revision::from_bytes([n; 16])));
    let late = |before, after| Late {
        before,
        reply: a,
        after,
    };
    assert_eq!(check_late(late(b, b)), None);
    assert_eq!(check_late(late(a, a)), None);
    assert!(check_late(late(b, a)).is_some());
}

#[test]
fn unchecked_streams_are_found() {
    assert_eq!(check_events(false), None);
    assert!(check_events(true).is_some());
    assert_eq!(check_reopening(false), None);
    assert!(check_reopening(true).is_some());
    assert_eq!(check_peace(None), None);
    assert!(check_peace(Some(1)).is_some());
}
