//! I4: files (for a reader that checks the deadline), HTTP and metrics say "not leader" by the
//! deadline, whatever happened to the process.

use super::{Violation, violation};
use crate::election::BootTime;

/// A surface that says "leader" at `now`.
#[allow(dead_code, reason = "what is not compared is the evidence")]
#[derive(Debug, Clone, Copy)]
pub(in crate::sim) struct Surface {
    pub(in crate::sim) name: &'static str,
    pub(in crate::sim) now: BootTime,
    /// The end of the claim's authority according to the acknowledged writes.
    pub(in crate::sim) earned: Option<BootTime>,
}

pub(in crate::sim) fn check(surface: Surface) -> Option<Violation> {
    if surface.earned.is_some_and(|until| surface.now < until) {
        None
    } else {
        violation("I4", format!("{surface:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn surface(now: u64, earned: Option<u64>) -> Surface {
        Surface {
            name: "http",
            now: BootTime::from_nanos(now),
            earned: earned.map(BootTime::from_nanos),
        }
    }

    #[test]
    fn a_surface_may_say_leader_before_the_deadline() {
        assert_eq!(check(surface(4, Some(5))), None);
    }

    #[test]
    fn a_surface_that_says_leader_at_the_deadline_is_found() {
        assert!(check(surface(5, Some(5))).is_some());
        assert!(check(surface(5, None)).is_some());
    }
}
