//! Goal: if a rule of the election is missing, the model finds a violation. Method: explore with
//! each planted bug until an invariant breaks. The results must match the table in
//! `docs/verification/planted-bugs.md`; `BLESS=1` writes the table.

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
