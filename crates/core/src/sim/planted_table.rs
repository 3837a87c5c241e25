//! A table of planted bugs: the invariant that catches each one, and the number of seeds needed.
//! The documentation page must agree with the results; `BLESS=1` rewrites it.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of seeds needed, and the invariant that broke.
pub(crate) type Caught = Option<(u64, &'static str)>;

/// Searches for each of the bugs, on all cores.
pub(crate) fn search<M: Copy + Sync>(
    all: &[M],
    caught: impl Fn(M) -> Caught + Sync,
) -> Vec<Caught> {
    let next = AtomicUsize::new(0);
    let found = Mutex::new(BTreeMap::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let one = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(mutation) = all.get(index) else {
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
    found
        .into_inner()
        .expect("no panic")
        .into_values()
        .collect()
}

/// The markers around a table on the page, and the upper bound of its seeds.
pub(crate) struct Table {
    pub(crate) begin: &'static str,
    pub(crate) end: &'static str,
    pub(crate) seeds_max: u64,
}

impl Table {
    /// Compares the page with these rows, and fails if a bug was not caught.
    pub(crate) fn hold<M: Copy + Debug>(
        &self,
        rows: impl Iterator<Item = (M, &'static str, Caught)>,
    ) {
        let mut table = String::from(
            "| planted bug | the rule that it breaks | caught by | within seeds |\n\
             | --- | --- | --- | --- |\n",
        );
        let mut survivors = Vec::new();
        for (mutation, rule, caught) in rows {
            let (seeds, by) = caught.unwrap_or((self.seeds_max, "nothing"));
            let _ = writeln!(table, "| `{mutation:?}` | {rule} | {by} | {seeds} |");
            survivors.extend(caught.is_none().then(|| format!("{mutation:?}")));
        }
        let Self { begin, end, .. } = self;
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/verification.md");
        let page = std::fs::read_to_string(&path).expect("the page is there");
        let (before, rest) = page.split_once(begin).expect("the table begins");
        let (written, after) = rest.split_once(end).expect("the table ends");
        if std::env::var_os("BLESS").is_some() {
            let page = format!("{before}{begin}{table}{end}{after}");
            std::fs::write(&path, page).expect("the page can be written");
        } else {
            assert_eq!(written, table, "BLESS=1 writes the table");
        }
        assert_eq!(survivors, Vec::<String>::new(), "nobody noticed");
    }
}
