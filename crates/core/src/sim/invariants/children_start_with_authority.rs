//! A child starts only while its claim has authority, on its host's clock.

use super::{Violation, violation};
use crate::election::BootTime;

/// A child that a guard starts.
#[derive(Debug, Clone, Copy)]
pub(in crate::sim) struct Start {
    pub(in crate::sim) now: BootTime,
    /// The end of authority according to the acknowledged writes.
    pub(in crate::sim) until: Option<BootTime>,
}

pub(in crate::sim) fn check(start: Start) -> Option<Violation> {
    if start.until.is_some_and(|until| start.now < until) {
        None
    } else {
        violation("children start with authority", format!("{start:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn before_the_deadline_and_neither_at_it_nor_without_one() {
        let at = BootTime::from_nanos;
        let until = Some(at(10));
        assert_eq!(check(Start { now: at(9), until }), None);
        assert!(check(Start { now: at(10), until }).is_some());
        let until = None;
        assert!(check(Start { now: at(9), until }).is_some());
    }
}
