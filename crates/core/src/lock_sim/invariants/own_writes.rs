//! Writes that a process may send of its own claim: none after the claim ended, none after a
//! rejection before a read, no join while another claim's join is unresolved, and no leave while
//! the work runs (I6).

use crate::sim::invariants::{Violation, violation};

/// A call at the time it is sent.
#[derive(Debug, Clone, Copy)]
pub(in crate::lock_sim) struct Write {
    pub(in crate::lock_sim) operation: &'static str,
    /// The claim has been given up or has passed its deadline.
    pub(in crate::lock_sim) ended: bool,
    /// A reply has shown the claim in the document.
    pub(in crate::lock_sim) present: bool,
    /// The join of another claim may have been applied, and no reply has shown that claim.
    pub(in crate::lock_sim) other_join_open: bool,
    /// The newest write was rejected, and no read has been answered since.
    pub(in crate::lock_sim) unread_rejection: bool,
    /// The process has authority, so a renewal cannot wait.
    pub(in crate::lock_sim) holds: bool,
    pub(in crate::lock_sim) works: bool,
}

pub(in crate::lock_sim) fn check(write: Write) -> Option<Violation> {
    let joins = matches!(write.operation, "join" | "try");
    let broken = match write.operation {
        "leave" => write.works.then_some("I6"),
        "read" => None,
        _ if write.unread_rejection && !write.holds => Some("read after a rejection"),
        _ if write.ended => Some("ended claims stay ended"),
        _ if joins && write.present => Some("a claim joins once"),
        _ if joins && write.other_join_open => Some("a claim joins until it is known"),
        _ => None,
    };
    violation(broken?, format!("{write:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: Write = Write {
        operation: "join",
        ended: false,
        present: false,
        other_join_open: false,
        unread_rejection: false,
        holds: false,
        works: false,
    };

    #[test]
    fn what_the_protocol_sends_is_accepted() {
        let renewal = Write {
            operation: "renew",
            present: true,
            ..FINE
        };
        let leave = Write {
            operation: "leave",
            ended: true,
            present: true,
            unread_rejection: true,
            ..FINE
        };
        let read = Write {
            operation: "read",
            unread_rejection: true,
            ..FINE
        };
        let held = Write {
            holds: true,
            works: true,
            unread_rejection: true,
            ..renewal
        };
        for write in [FINE, renewal, leave, read, held] {
            assert_eq!(check(write), None);
        }
    }

    #[test]
    fn everything_else_is_found() {
        let renewal = Write {
            operation: "renew",
            ..FINE
        };
        for (write, broken) in [
            (
                Write {
                    ended: true,
                    ..renewal
                },
                "ended claims stay ended",
            ),
            (
                Write {
                    unread_rejection: true,
                    ..renewal
                },
                "read after a rejection",
            ),
            (
                Write {
                    present: true,
                    ..FINE
                },
                "a claim joins once",
            ),
            (
                Write {
                    other_join_open: true,
                    ..FINE
                },
                "a claim joins until it is known",
            ),
            (
                Write {
                    operation: "leave",
                    works: true,
                    ..FINE
                },
                "I6",
            ),
        ] {
            assert_eq!(check(write).map(|v| v.invariant), Some(broken));
        }
    }
}
