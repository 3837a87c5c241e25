//! Every rule of the locks, broken on purpose, is noticed: within how many
//! seeds, and by which invariant.

use super::run::{Setup, run};
use crate::lock::mutation::{self, Mutation};
use crate::sim::planted_table::{Caught, Table, search};

/// No planted bug may need more seeds than this.
const SEEDS_MAX: u64 = 1_000;

const TABLE: Table = Table {
    begin: "<!-- planted bugs of the locks: BLESS=1 writes this table -->\n",
    end: "<!-- end of planted bugs of the locks -->\n",
    seeds_max: SEEDS_MAX,
};

/// The first seed that fails, and what it breaks.
fn caught(mutation: Mutation) -> Caught {
    mutation::with(Some(mutation), || {
        (0..SEEDS_MAX).find_map(|seed| {
            let violation = run(&Setup::new(seed)).violation?;
            Some((seed + 1, violation.invariant))
        })
    })
}

#[test]
fn every_planted_bug_is_caught_as_the_table_says() {
    let found = search(Mutation::ALL, caught);
    let rows = Mutation::ALL.iter().zip(found);
    let rows = rows.map(|(mutation, caught)| (*mutation, mutation.rule(), caught));
    TABLE.hold(rows);
}
