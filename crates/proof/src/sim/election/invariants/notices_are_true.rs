//! A candidate raises no false alarm. It reports an older document (`store_went_back`) or a
//! duplicate of its claim only with a real cause.

use super::{Violation, require, with};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Said {
    pub(crate) store_went_back: bool,
    pub(crate) duplicate: bool,
    pub(crate) damaged: bool,
    /// A majority had the reported state at some time since the candidate sent its last read.
    pub(crate) was_so: bool,
    pub(crate) forked_or_edited: bool,
}

pub(crate) fn check(said: Said) -> Option<Violation> {
    let true_loss = !said.store_went_back || (said.damaged && said.was_so);
    let true_duplicate = !said.duplicate || said.forked_or_edited || said.damaged;
    require(true_loss && true_duplicate, "notices are true", &said)
}

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
    let of_the_past = with(said(true, false, true, false), |it| it.was_so = false);
    assert!(check(of_the_past).is_some());
    assert!(check(said(true, false, false, true)).is_some());
    assert!(check(said(false, true, false, false)).is_some());
}
