//! Goal: the comparison tables in docs/benchmarks.md and docs/benchmarks/peers.md always agree with
//! the recorded runs. Method: generates the tables from the JSON that `make bench` wrote, and
//! compares them with the pages. `UPDATE_DOCS=1 cargo test --test benchmarks_page` writes the
//! pages.

use std::fmt::Write;
use std::fs;
use std::path::Path;

#[path = "../benches/figures/results.rs"]
#[allow(dead_code, reason = "shared with the benchmark, which uses the rest")]
mod results;

use results::{Measured, Results, Unit, Values};

const ALL: &str = "docs/benchmarks/peers.md";
/// The page with the conclusions, which shows only the figures in `ANSWERED`, from the first run.
const ANSWERS: &str = "docs/benchmarks.md";
const ANSWERED: [&str; 3] = ["peers_election", "peers_rest", "peers_lock"];
const RUNS: [&str; 3] = [
    "docs/benchmarks/peers.json",
    "docs/benchmarks/peers-disk.json",
    "docs/benchmarks/many.json",
];

fn published(path: &str) -> Results {
    let run = Results::read(&root().join(path)).unwrap_or_else(|problem| panic!("{problem}"));
    assert_eq!(run.schema, results::SCHEMA, "{path}: measure again");
    assert!(run.compares(), "{path}: FIGURES=peers is missing");
    run
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Compares the section `name` of a page with `text`. With UPDATE_DOCS, writes the section.
fn write_or_compare(page: &str, name: &str, text: &str) {
    let begin = format!("<!-- {name}: made by tests/benchmarks_page.rs -->\n");
    let end = format!("<!-- end of {name} -->");
    let path = root().join(page);
    let content = fs::read_to_string(&path).expect("the page can be read");
    let (before, rest) = content.split_once(&begin).expect("the section begins");
    let (written, after) = rest.split_once(&end).expect("the section ends");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let content = format!("{before}{begin}{text}\n{end}{after}");
        fs::write(path, content).expect("the page can be written");
    } else {
        let remedy = "run: UPDATE_DOCS=1 cargo test --test benchmarks_page";
        assert_eq!(written, format!("{text}\n"), "{page}, {name}: {remedy}");
    }
}

/// Returns the table of one figure, without the description of the machine and the row with the
/// figure's name.
fn table_of(run: &Results, figure: &str) -> String {
    let mut part = run.clone();
    part.rows.retain(|row| row.figure == figure);
    let tables = part.tables();
    let (_, table) = tables.split_once("| figure |").expect("a table");
    let title = format!("| **{figure}** | | | | | | |\n");
    format!("\n| figure |{}", table.replacen(&title, "", 1))
}

#[test]
fn the_pages_contain_the_tables_of_the_published_runs() {
    let runs = RUNS.map(published);
    let mut tables = String::new();
    for run in &runs {
        let _ = write!(tables, "\n{}", run.tables());
    }
    write_or_compare(ALL, "tables", &tables);
    for figure in ANSWERED {
        write_or_compare(ANSWERS, figure, &table_of(&runs[0], figure));
    }
}

fn row(system: &str, p50: f64) -> Measured {
    Measured {
        figure: "peers_election".to_owned(),
        what: "handoff".to_owned(),
        system: system.to_owned(),
        disk: "ram".to_owned(),
        unit: Unit::Time,
        values: Some(Values {
            n: 20,
            p50,
            p99: 2.0 * p50,
            min: p50,
            max: 2.0 * p50,
        }),
        ratio: None,
        target: None,
        verdict: None,
        skipped: None,
    }
}

fn run(rows: Vec<Measured>) -> Results {
    let map = |key: &str, value: &str| [(key.to_owned(), value.to_owned())].into();
    Results {
        schema: results::SCHEMA,
        machine: "a machine".to_owned(),
        load: "0.1 0.1 0.1".to_owned(),
        sizes: "full".to_owned(),
        versions: map("mongod", "6.0.5"),
        disks: map("ram", "/dev/shm"),
        rows,
    }
}

#[test]
fn a_table_contains_ratios_verdicts_and_reasons_for_missing_rows() {
    let ours = Measured {
        target: Some("≤ 1.4 × the floor".to_owned()),
        verdict: Some("missed".to_owned()),
        ..row("leasehold", 0.012)
    };
    let floor = Measured {
        ratio: Some(2.0),
        ..row("floor", 0.006)
    };
    let skipped = Measured {
        values: None,
        skipped: Some("no Go toolchain".to_owned()),
        ..row("client-go", 0.0)
    };
    let failed = Measured {
        values: None,
        ..row("etcdctl elect", 0.0)
    };
    let tables = run(vec![ours, floor, skipped, failed]).tables();
    let (_, rows) = tables.split_once("| --- |\n").expect("a table");
    let alone = table_of(&run(vec![row("leasehold", 0.012)]), "peers_election");
    assert_eq!(
        alone.lines().nth(3),
        Some("| handoff | leasehold | 12.0 ms | 24.0 ms | 20 | | |")
    );
    assert_eq!(
        rows,
        "| **peers_election** | | | | | | |\n\
         | handoff | leasehold | 12.0 ms | 24.0 ms | 20 | | ≤ 1.4 × the floor: missed |\n\
         | | floor | 6.00 ms | 12.0 ms | 20 | 2.00 | |\n\
         | | client-go | skipped: no Go toolchain | | | | |\n\
         | | etcdctl elect | failed | | | | |\n"
    );
}

#[test]
fn a_run_does_not_change_when_written_and_read() {
    let missing = Measured {
        values: None,
        ..row("client-go", 0.0)
    };
    let before = run(vec![row("leasehold", 0.012), missing]);
    let text = serde_json::to_string(&before).expect("JSON");
    let after: Results = serde_json::from_str(&text).expect("the same JSON");
    assert_eq!(after, before);
}
