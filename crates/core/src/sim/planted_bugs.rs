//! Every rule, broken on purpose, is noticed: by which invariant, and within how many seeds. The
//! table in `docs/verification.md` must agree with the results; `BLESS=1` rewrites it.

use std::path::Path;

use super::planted_table::{Caught, Table, search};
use super::run::{Setup, run, unsteady};
use crate::election::mutation::{self, Mutation};

/// No planted bug may need more seeds than this.
const SEEDS_MAX: u64 = 1_000;

/// Maximum number of places in the shipped logic where a rule can be broken.
const SITES_MAX: usize = 40;

const TABLE: Table = Table {
    begin: "<!-- planted bugs: BLESS=1 writes this table -->\n",
    end: "<!-- end of planted bugs -->\n",
    seeds_max: SEEDS_MAX,
};

/// Returns the first seed that fails, and the invariant that it breaks.
fn caught(mutation: Mutation) -> Caught {
    mutation::with(Some(mutation), || {
        (0..SEEDS_MAX).find_map(|seed| {
            let ran = run(&Setup::new(seed));
            let clock = matches!(mutation, Mutation::WallClock | Mutation::ServerClock);
            let unsteady = || {
                clock
                    .then(|| unsteady(&Setup::new(seed), ran.decisions))
                    .flatten()
            };
            let violation = ran.violation.or_else(unsteady)?;
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

/// Otherwise, the absence of the marker in the daemon would prove nothing.
#[test]
fn a_program_with_planted_bugs_carries_their_marker() {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/election/mutation.rs");
    let text = std::fs::read_to_string(source).expect("the planted bugs");
    let (_, rest) = text
        .split_once("const MARKER: &str = \"")
        .expect("the marker");
    let (marker, _) = rest.split_once('"').expect("the marker ends");
    let program = std::env::current_exe().expect("this program");
    let program = std::fs::read(program).expect("readable");
    assert!(
        program
            .windows(marker.len())
            .any(|w| w == marker.as_bytes())
    );
}

/// Returns the number of places in a file or directory where a rule can be broken, without tests,
/// lists of bugs and references.
fn sites(path: &Path) -> usize {
    let is = |name| path.file_name().is_some_and(|file| file == name);
    if ["tests", "tests.rs", "mutation.rs", "reference.rs"]
        .into_iter()
        .any(is)
    {
        return 0;
    }
    if path.is_dir() {
        let files = std::fs::read_dir(path).expect("a directory");
        return files
            .map(|file| sites(&file.expect("an entry").path()))
            .sum();
    }
    let text = std::fs::read_to_string(path).expect("a source file");
    text.matches("planted!(").count()
}

/// Each place makes the shipped logic harder to read, so it must be worth it: a bug that
/// `cargo-mutants` makes too needs a unit test instead.
#[test]
fn the_shipped_logic_has_few_planted_bugs() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let shipped = [
        "election.rs",
        "election",
        "deadline_policy.rs",
        "lock.rs",
        "lock",
    ];
    let sites: usize = shipped.iter().map(|path| sites(&src.join(path))).sum();
    assert!((1..=SITES_MAX).contains(&sites), "{sites} places");
}
