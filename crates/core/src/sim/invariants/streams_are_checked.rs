//! An open stream is not trusted indefinitely: a follower also reads, reopens the stream if it may
//! be stale, and does not treat a late reply as news (*Change streams* in `docs/protocol.md`).

use std::time::Duration;

use super::{Violation, violation};
use crate::election::Revision;

/// A turn of a follower after which none of its calls is in flight.
#[derive(Debug, Clone, Copy)]
pub(in crate::sim) struct Asked {
    /// Time since the last reply.
    pub(in crate::sim) silent: Duration,
    pub(in crate::sim) silent_max: Duration,
    /// Time since the last reply or event.
    pub(in crate::sim) unheard: Duration,
    pub(in crate::sim) unheard_max: Duration,
    /// True if the document has a holder, as last shown.
    pub(in crate::sim) held: bool,
}

pub(in crate::sim) fn check_asked(asked: Asked) -> Option<Violation> {
    let lapsed = asked.silent >= asked.silent_max;
    let unheard = asked.held && asked.unheard >= asked.unheard_max;
    if lapsed || unheard {
        violation("streams are checked", format!("{asked:?}"))
    } else {
        None
    }
}

/// The revision that the follower considers stored, before and after a reply that is older than an
/// event before it.
#[derive(Debug, Clone, Copy)]
pub(in crate::sim) struct Late {
    pub(in crate::sim) before: Option<Revision>,
    pub(in crate::sim) reply: Option<Revision>,
    pub(in crate::sim) after: Option<Revision>,
}

pub(in crate::sim) fn check_late(late: Late) -> Option<Violation> {
    if late.before != late.after && late.after == late.reply {
        violation("late replies", format!("{late:?}"))
    } else {
        None
    }
}

/// Checks that the stream was reopened after a new primary or a rejected takeover.
pub(in crate::sim) fn check_reopening(owed: bool) -> Option<Violation> {
    owed.then(|| violation("streams are checked", "not opened anew".to_owned()))?
}

/// Checks that an event, which contains only the changes, is applied to a document that was shown
/// since the stream was opened.
pub(in crate::sim) fn check_told(of_a_document_before: bool) -> Option<Violation> {
    of_a_document_before.then(|| {
        let evidence = "an event changed a document of before the stream was opened";
        violation("streams are checked", evidence.to_owned())
    })?
}

/// Checks that every stale stream was detected in the healing period.
pub(in crate::sim) fn check_peace(stale: Option<usize>) -> Option<Violation> {
    let process = stale?;
    violation(
        "streams are checked",
        format!("p{process} still follows a stale stream"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_in_time_is_in_order() {
        let asked = Asked {
            silent: Duration::from_secs(23),
            silent_max: Duration::from_secs(24),
            unheard: Duration::from_secs(5),
            unheard_max: Duration::from_secs(6),
            held: true,
        };
        assert_eq!(check_asked(asked), None);
        let silent = Duration::from_secs(24);
        assert!(check_asked(Asked { silent, ..asked }).is_some());
        let unheard = Duration::from_secs(6);
        assert!(check_asked(Asked { unheard, ..asked }).is_some());
        let held = false;
        assert_eq!(
            check_asked(Asked {
                unheard,
                held,
                ..asked
            }),
            None
        );
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
    fn what_is_owed_and_who_is_deaf_is_found() {
        assert_eq!(check_told(false), None);
        assert!(check_told(true).is_some());
        assert_eq!(check_reopening(false), None);
        assert!(check_reopening(true).is_some());
        assert_eq!(check_peace(None), None);
        assert!(check_peace(Some(1)).is_some());
    }
}
