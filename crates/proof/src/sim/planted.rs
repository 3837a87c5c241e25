//! Checks that some invariant catches each planted bug, and counts the seeds that are needed. The
//! results must match the tables in `docs/verification/planted-bugs.md`; `BLESS=1` writes them.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::invariants::Violation;

/// Maximum number of seeds. A planted bug that these seeds do not reveal counts as not caught.
const SEEDS_MAX: u64 = 6_000;
const SITES_MAX: usize = 55;

pub(crate) trait Bug: Copy + Debug + Sync + 'static {
    const ALL: &'static [Self];

    /// Returns the text of the rule in `docs/verification/planted-bugs.md`.
    fn rule(self) -> &'static str;

    fn active() -> Option<Self>;

    fn with<T>(bug: Option<Self>, run: impl FnOnce() -> T) -> T;
}

/// The number of seeds that were needed, and the violated invariant.
type Caught = Option<(u64, &'static str)>;

/// Searches for every bug on all cores. The results must match the table that follows the line
/// `<!-- NAME: BLESS=1 writes this table -->`. `violation` runs a seed with a bug, and returns the
/// violated invariant, if any.
pub(super) fn each_is_caught<B: Bug>(
    name: &str,
    violation: impl Fn(B, u64) -> Option<Violation> + Sync,
) {
    let caught = |bug: B| {
        B::with(Some(bug), || {
            (0..SEEDS_MAX).find_map(|seed| Some((seed + 1, violation(bug, seed)?.invariant)))
        })
    };
    hold(name, B::ALL.iter().copied().zip(search(B::ALL, caught)));
}

fn search<B: Bug>(all: &[B], caught: impl Fn(B) -> Caught + Sync) -> Vec<Caught> {
    let next = AtomicUsize::new(0);
    let found = Mutex::new(BTreeMap::new());
    let one = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(bug) = all.get(index) else { return };
            let caught = caught(*bug);
            found.lock().expect("no panic").insert(index, caught);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(one);
        }
    });
    let found = found.into_inner().expect("no panic");
    found.into_values().collect()
}

/// Fails if a bug was not caught, or if the page's table has other rows.
fn hold<B: Bug>(name: &str, rows: impl Iterator<Item = (B, Caught)>) {
    let mut table = String::from(
        "| planted bug | the rule that it breaks | caught by | within seeds |\n\
         | --- | --- | --- | --- |\n",
    );
    let mut survivors = Vec::new();
    for (bug, caught) in rows {
        let (seeds, by) = caught.unwrap_or((SEEDS_MAX, "nothing"));
        let _ = writeln!(table, "| `{bug:?}` | {} | {by} | {seeds} |", bug.rule());
        survivors.extend(caught.is_none().then(|| format!("{bug:?}")));
    }
    write_or_compare(name, &table);
    assert_eq!(survivors, Vec::<String>::new(), "nobody noticed");
}

/// Fails if a table in `docs/verification/planted-bugs.md` differs from this table. If `BLESS` is
/// set, writes the table instead.
pub(crate) fn write_or_compare(name: &str, table: &str) {
    let begin = format!("<!-- {name}: BLESS=1 writes this table -->\n");
    let end = format!("<!-- end of {name} -->\n");
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let path = here.join("../../docs/verification/planted-bugs.md");
    let page = std::fs::read_to_string(&path).expect("the page can be read");
    let (before, rest) = page.split_once(&begin).expect("the table begins");
    let (written, after) = rest.split_once(&end).expect("the table ends");
    if std::env::var_os("BLESS").is_some() {
        let page = format!("{before}{begin}{table}{end}{after}");
        std::fs::write(&path, page).expect("the page can be written");
    } else {
        assert_eq!(written, table, "BLESS=1 writes the table");
    }
}

/// If the marker were missing here, its absence from the daemon would prove nothing.
#[test]
fn a_program_with_planted_bugs_carries_their_marker() {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/planted/election.rs");
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

fn sites(path: &Path) -> usize {
    let is = |name| path.file_name().is_some_and(|file| file == name);
    if ["tests", "tests.rs"].into_iter().any(is) {
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

/// Each use of `planted!` makes the shipped logic harder to read. For a bug that `cargo-mutants`
/// can generate, write a unit test instead.
#[test]
fn the_shipped_logic_has_few_planted_bugs() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/src");
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
