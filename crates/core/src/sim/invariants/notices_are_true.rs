//! A candidate cries wolf only when there is one: a store that went back, or
//! a duplicate of its claim, was caused by somebody.

use super::{Violation, violation};

/// What is said, and what happened.
#[derive(Debug, Clone, Copy)]
pub(in crate::sim) struct Said {
    pub(in crate::sim) store_went_back: bool,
    pub(in crate::sim) duplicate: bool,
    /// The document was deleted or restored.
    pub(in crate::sim) damaged: bool,
    /// A majority had what the candidate says that it found, since it sent its
    /// last read.
    pub(in crate::sim) was_so: bool,
    /// A machine was forked, or the document edited or damaged.
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
