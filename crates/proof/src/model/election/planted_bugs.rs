//! Goal: the model notices when a rule is broken. Method: each planted bug is explored until an
//! invariant breaks. The table of `docs/verification/planted-bugs.md` must match the result, and
//! `BLESS=1` writes it.

use crate::proof::model::election::planted::planted;
use crate::proof::model::planted_bugs::{Searched, each_is_found};

#[test]
fn every_planted_bug_is_found_as_the_table_says() {
    let searched = planted().into_iter().map(|bug| Searched {
        name: format!("{:?}", bug.mutation),
        among: bug.among,
        figures: bug.explore(),
    });
    each_is_found("bugs planted in the model", searched);
}
