//! I4: from the deadline on, HTTP, metrics and files say "not leader" whatever the process does.
//! For a file, this holds only if the reader checks the deadline in the file.

use super::{Violation, require};
use crate::election::BootTime;

#[allow(
    dead_code,
    reason = "the report of a violation shows the fields that are not compared"
)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Surface {
    pub(crate) name: &'static str,
    pub(crate) now: BootTime,
    pub(crate) earned: Option<BootTime>,
}

pub(crate) fn check(surface: Surface) -> Option<Violation> {
    let in_time = surface.earned.is_some_and(|until| surface.now < until);
    require(in_time, "I4", &surface)
}

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
