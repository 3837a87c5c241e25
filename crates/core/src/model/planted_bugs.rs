//! Goal: the model notices when a rule is broken. Method: each planted bug is explored until an
//! invariant breaks. The table of `docs/verification.md` must match the result, and `BLESS=1`
//! writes it.

use std::fmt::Write as _;

use crate::model::planted::planted;
use crate::sim::planted::write_or_compare;

/// Returns the table of results, and the bugs that were not noticed. The steps are in the test's
/// output: `cargo test -- --nocapture`.
#[expect(clippy::print_stdout, reason = "the way to each is worth reading")]
fn explore_all() -> (String, Vec<String>) {
    let mut table = String::from(
        "| planted bug | looked for among | breaks | after steps |\n| --- | --- | --- | --- |\n",
    );
    let mut unnoticed = Vec::new();
    for bug in planted() {
        let name = format!("{:?}", bug.mutation);
        let figures = bug.explore();
        println!("{name}: {figures}");
        match figures.broken {
            Some((broken, steps)) => {
                let invariant = broken.split(':').next().unwrap_or(broken);
                let (among, steps) = (bug.among, steps.len());
                let _ = writeln!(table, "| `{name}` | {among} | {invariant} | {steps} |");
            }
            None => unnoticed.push(name),
        }
    }
    (table, unnoticed)
}

#[test]
fn every_planted_bug_is_found_as_the_table_says() {
    let (table, unnoticed) = explore_all();
    assert_eq!(unnoticed, Vec::<String>::new(), "nobody noticed:\n{table}");
    write_or_compare("bugs planted in the model", &table);
}
