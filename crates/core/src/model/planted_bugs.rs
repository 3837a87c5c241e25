//! Goal: the model notices when a rule is broken. Method: each planted bug is explored until an
//! invariant breaks. The table of `docs/verification.md` must match the result, and `BLESS=1`
//! writes it.

use std::fmt::Write as _;
use std::path::Path;

use crate::model::planted::planted;

const BEGIN: &str = "<!-- bugs planted in the model: BLESS=1 writes this table -->\n";
const END: &str = "<!-- end of bugs planted in the model -->\n";

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
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/verification.md");
    let page = std::fs::read_to_string(&path).expect("the page is there");
    let (before, rest) = page.split_once(BEGIN).expect("the table begins");
    let (written, after) = rest.split_once(END).expect("the table ends");
    if std::env::var_os("BLESS").is_some() {
        let page = format!("{before}{BEGIN}{table}{END}{after}");
        std::fs::write(&path, page).expect("the page can be written");
    } else {
        assert_eq!(written, table, "BLESS=1 writes the table");
    }
}
