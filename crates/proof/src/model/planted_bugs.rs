//! The tables of the planted bugs that the models find, in `docs/verification/planted-bugs.md`.

use std::fmt::Write as _;

use super::exploration::Figures;
use crate::proof::sim::planted::write_or_compare;

#[derive(Debug)]
pub(super) struct Searched {
    pub(super) name: String,
    pub(super) among: &'static str,
    pub(super) figures: Figures,
}

/// Fails if the search missed a planted bug, or if the page's table `name` differs from the
/// result. `BLESS=1` writes the table. To see the steps, run `cargo test -- --nocapture`.
#[expect(
    clippy::print_stdout,
    reason = "the steps to each bug are worth reading"
)]
pub(super) fn each_is_found(name: &str, results: impl Iterator<Item = Searched>) {
    let mut table = String::from(
        "| planted bug | looked for among | breaks | after steps |\n| --- | --- | --- | --- |\n",
    );
    let mut unnoticed = Vec::new();
    for searched in results {
        let Searched {
            name,
            among,
            figures,
        } = searched;
        println!("{name}: {figures}");
        match figures.broken {
            Some((broken, steps)) => {
                let invariant = broken.split(':').next().unwrap_or(broken);
                let steps = steps.len();
                let _ = writeln!(table, "| `{name}` | {among} | {invariant} | {steps} |");
            }
            None => unnoticed.push(name),
        }
    }
    assert_eq!(unnoticed, Vec::<String>::new(), "nobody noticed:\n{table}");
    write_or_compare(name, &table);
}
