//! A process must not send certain writes for its own claim: no write after the claim ended, no
//! write between a rejection and a read, no join while another claim's join has an unknown
//! outcome, and no leave while the work runs (I6). A `keep` counts as a leave, but must not be
//! sent once the user asked the process to give up.

use super::{Violation, violation, with};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Write {
    pub(crate) operation: &'static str,
    pub(crate) ended: bool,
    pub(crate) present: bool,
    /// The store may have applied the join of another claim, and no reply has shown that claim.
    pub(crate) other_join_open: bool,
    pub(crate) unread_rejection: bool,
    /// The process has authority, so a renewal cannot wait.
    pub(crate) holds: bool,
    pub(crate) works: bool,
    /// The user asked the process to give up before its work began.
    pub(crate) gave_up: bool,
}

pub(crate) fn check(write: Write) -> Option<Violation> {
    let joins = matches!(write.operation, "join" | "try");
    let broken = match write.operation {
        "keep" if write.gave_up => Some("abandoned places are freed"),
        "leave" | "keep" => write.works.then_some("I6"),
        "read" => None,
        _ if write.unread_rejection && !write.holds => Some("read after a rejection"),
        _ if write.ended => Some("ended claims stay ended"),
        _ if joins && write.present => Some("a stored claim does not join again"),
        _ if joins && write.other_join_open => Some("a join is retried until its outcome is known"),
        _ => None,
    };
    violation(broken?, format!("{write:?}"))
}

const FINE: Write = Write {
    operation: "join",
    ended: false,
    present: false,
    other_join_open: false,
    unread_rejection: false,
    holds: false,
    works: false,
    gave_up: false,
};

#[test]
fn the_calls_of_the_protocol_are_accepted() {
    let renewal = with(FINE, |it| (it.operation, it.present) = ("renew", true));
    let leave = Write {
        operation: "leave",
        ended: true,
        present: true,
        unread_rejection: true,
        ..FINE
    };
    let read = with(FINE, |it| {
        (it.operation, it.unread_rejection) = ("read", true)
    });
    let held = with(renewal, |it| {
        (it.holds, it.works, it.unread_rejection) = (true, true, true)
    });
    let freed = with(leave, |it| it.gave_up = true);
    for write in [FINE, renewal, leave, read, held, freed] {
        assert_eq!(check(write), None);
    }
}

#[test]
fn everything_else_is_found() {
    let renewal = with(FINE, |it| it.operation = "renew");
    let leave = with(FINE, |it| it.operation = "leave");
    let keep = with(FINE, |it| it.operation = "keep");
    type Change = fn(&mut Write);
    let wrong: [(&str, Write, Change); 6] = [
        ("ended claims stay ended", renewal, |it| it.ended = true),
        ("read after a rejection", renewal, |it| {
            it.unread_rejection = true
        }),
        ("a stored claim does not join again", FINE, |it| {
            it.present = true
        }),
        ("a join is retried until its outcome is known", FINE, |it| {
            it.other_join_open = true
        }),
        ("I6", leave, |it| it.works = true),
        ("abandoned places are freed", keep, |it| it.gave_up = true),
    ];
    for (broken, write, change) in wrong {
        let violation = check(with(write, change));
        assert_eq!(violation.map(|v| v.invariant), Some(broken));
    }
}
