//! Every planted bug of the locks is noticed. The table states within how many seeds, and by which
//! invariant.

use super::run::{Setup, run};
use crate::lock::mutation::{self, Mutation};
use crate::sim::planted_table::{Caught, Table, search};

/// Maximum number of seeds that a planted bug may need.
const SEEDS_MAX: u64 = 1_000;

const TABLE: Table = Table {
    begin: "<!-- planted bugs of the locks: BLESS=1 writes this table -->\n",
    end: "<!-- end of planted bugs of the locks -->\n",
    seeds_max: SEEDS_MAX,
};

/// Returns the number of seeds up to the first failure, and the broken invariant.
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
