//! Every rule, broken on purpose, is noticed: within how many seeds, and by
//! which invariant. The table of `docs/verification.md` is held to what is
//! found here; `BLESS=1` writes it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::run::{Setup, run, unsteady};
use crate::election::mutation::{self, Mutation};

/// No planted bug may need more seeds than this.
const SEEDS_MAX: u64 = 1_000;

const BEGIN: &str = "<!-- planted bugs: BLESS=1 writes this table -->\n";
const END: &str = "<!-- end of planted bugs -->\n";

/// The first seed that fails, and what it breaks.
fn caught(mutation: Mutation) -> Option<(u64, &'static str)> {
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

fn all() -> BTreeMap<usize, Option<(u64, &'static str)>> {
    let next = AtomicUsize::new(0);
    let found = Mutex::new(BTreeMap::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let one = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(mutation) = Mutation::ALL.get(index) else {
                return;
            };
            let caught = caught(*mutation);
            found.lock().expect("no panic").insert(index, caught);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(one);
        }
    });
    found.into_inner().expect("no panic")
}

#[test]
fn every_planted_bug_is_caught_as_the_table_says() {
    let found = all();
    let mut table = String::from(
        "| planted bug | the rule that it breaks | caught by | within seeds |\n\
         | --- | --- | --- | --- |\n",
    );
    let mut survivors = Vec::new();
    for (index, caught) in &found {
        let mutation = Mutation::ALL[*index];
        let (rule, caught) = (mutation.rule(), caught.as_ref());
        survivors.extend(caught.is_none().then_some(mutation));
        let (by, seeds) = caught.map_or(("nothing", SEEDS_MAX), |(seeds, by)| (by, *seeds));
        let _ = writeln!(table, "| `{mutation:?}` | {rule} | {by} | {seeds} |");
    }
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/verification.md");
    let page = std::fs::read_to_string(&path).expect("the page is there");
    let (before, rest) = page.split_once(BEGIN).expect("the table begins");
    let (written, after) = rest.split_once(END).expect("the table ends");
    if std::env::var_os("BLESS").is_some() {
        let page = format!("{before}{BEGIN}{table}{END}{after}");
        std::fs::write(&path, page).expect("the page can be written");
    } else {
        assert_eq!(written, table, "BLESS=1 writes the table");
    }
    assert_eq!(survivors, Vec::<Mutation>::new(), "nobody noticed");
}

/// Else its absence in the daemon would show nothing.
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
