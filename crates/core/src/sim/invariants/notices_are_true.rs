//! A candidate gives no false alarm: a document reported as older than before (`store_went_back`),
//! or a reported duplicate of its claim, has a real cause.

use super::{Violation, violation};

/// A notice, and what happened.
#[derive(Debug, Clone, Copy)]
pub(in crate::sim) struct Said {
    pub(in crate::sim) store_went_back: bool,
    pub(in crate::sim) duplicate: bool,
    /// True if the document was deleted or restored.
    pub(in crate::sim) damaged: bool,
    /// True if, since the candidate sent its last read, a majority had the state that it reports.
    pub(in crate::sim) was_so: bool,
    /// True if a machine was forked, or the document edited or damaged.
    pub(in crate::sim) forked_or_edited: bool,
}

pub(in crate::sim) fn check(said: Said) -> Option<Violation> {
    let true_loss = !said.store_went_back || (said.damaged && said.was_so);
    let true_duplicate = !said.duplicate || said.forked_or_edited || said.damaged;
    if true_loss && true_duplicate {
        None
    } else {
        violation("notices are true", format!("{said:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_needs_its_cause() {
        let said = |store_went_back, duplicate, damaged, forked_or_edited| Said {
            store_went_back,
            duplicate,
            damaged,
            was_so: true,
            forked_or_edited,
        };
        assert_eq!(check(said(true, false, true, false)), None);
        assert_eq!(check(said(false, true, false, true)), None);
        let of_the_past = Said {
            was_so: false,
            ..said(true, false, true, false)
        };
        assert!(check(of_the_past).is_some());
        assert!(check(said(true, false, false, true)).is_some());
        assert!(check(said(false, true, false, false)).is_some());
    }
}
