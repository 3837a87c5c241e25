//! Converts the figures of `crate::locks` to rows of the comparison.

use super::{LEASEHOLD, add};
use crate::launch::Setup;
use crate::locks;
use crate::report::Row;

const FIGURE: &str = "peers_lock";

pub(crate) async fn measure(setup: Setup) -> Vec<Row> {
    let mut rows = Vec::new();
    let uncontended = async { Ok(locks::uncontended(setup.clone()).await) };
    add(&mut rows, (FIGURE, LEASEHOLD), uncontended).await;
    let handover = async { Ok(locks::hand_over(setup.clone()).await) };
    add(&mut rows, (FIGURE, LEASEHOLD), handover).await;
    let contended = async { Ok(locks::contended(setup.clone()).await) };
    add(&mut rows, (FIGURE, LEASEHOLD), contended).await;
    // The comparison does not need one row for each kind of command.
    rows.retain(|row| !row.what.starts_with("of which") || row.what == locks::COMMANDS_TO_WRITE);
    // The targets of a comparison are ratios, so they are added once all rows exist.
    for row in &mut rows {
        row.figure = FIGURE;
        row.target.clear();
        row.verdict = if row.verdict == "FAILED" {
            "FAILED"
        } else {
            ""
        };
    }
    rows.sort_by_key(|row| order(&row.what));
    rows
}

/// Returns the sort key that keeps the rows of a figure together, in the order of `locks::FIGURES`.
fn order(what: &str) -> usize {
    let known = locks::FIGURES.iter();
    known.take_while(|known| **known != what).count()
}
