//! Some news requires a call in the same turn: an opened stream requires a read, because earlier
//! changes are not reported; a new primary requires a renewal, in addition to one that hangs on the
//! old primary (*Change streams* and *Outcomes* in `docs/protocol.md`).

use super::{Violation, violation};

/// The calls that a process still owes when its next turn begins.
#[derive(Debug, Clone, Copy)]
pub(in crate::sim) struct Owed {
    pub(in crate::sim) read: bool,
    pub(in crate::sim) renewal: bool,
}

pub(in crate::sim) fn check(owed: Owed) -> Option<Violation> {
    if owed.read || owed.renewal {
        violation("news is followed up", format!("{owed:?}"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_owed_is_found() {
        let owed = |read, renewal| Owed { read, renewal };
        assert_eq!(check(owed(false, false)), None);
        assert!(check(owed(true, false)).is_some());
        assert!(check(owed(false, true)).is_some());
    }
}
