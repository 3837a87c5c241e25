//! Goal: each timeout in the table of bounds in `docs/architecture.md` equals the constant in the
//! code.

#![allow(
    clippy::unwrap_used,
    reason = "a missing page or file should fail the test"
)]

use std::path::{Path, PathBuf};

const SECTION: &str = "## Bounds of waits\n";

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Formats a `Duration` constructor as the page does: `from_millis(500)` becomes `500 ms`.
fn written(constructor: &str) -> Option<String> {
    let (unit, rest) = constructor.split_once('(')?;
    let (number, _) = rest.split_once(')')?;
    let unit = match unit {
        "from_millis" => "ms",
        "from_secs" => "s",
        _ => return None,
    };
    Some(format!("{} {unit}", number.replace('_', "")))
}

fn constant(source: &str, name: &str) -> Option<String> {
    let definition = format!("const {name}: Duration = Duration::");
    let (_, rest) = source.split_once(&definition)?;
    written(rest)
}

fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// Constants that are named like timeouts but do not limit a wait.
const OTHERS: &[(&str, &[&str])] = &[
    // Limits of settings, options and documents.
    ("crates/core/src/election/lease.rs", &["RESERVATION_MAX"]),
    (
        "crates/core/src/election/timings.rs",
        &["LEASE_DURATION_MAX"],
    ),
    ("crates/core/src/lock/document.rs", &["MIN_HOLD_MAX"]),
    ("crates/cli/src/values.rs", &["TIMEOUT_MAX"]),
    ("crates/operate/src/check.rs", &["TIMEOUT_MAX"]),
    ("crates/job/src/arguments.rs", &["PERIOD_MAX", "WAIT_MAX"]),
    ("crates/operate/src/locks.rs", &["UNUSED_MAX"]),
    (
        "crates/operate/src/operators/arguments.rs",
        &["OBSERVE_MAX"],
    ),
    ("crates/operate/src/replicas.rs", &["WAIT_MAX"]),
    (
        "crates/config/src/schema.rs",
        &["PREFER_INTERVAL_MAX", "STOP_GRACE_MAX"],
    ),
    // Pauses and intervals.
    ("crates/core/src/election/waits.rs", &["SPREAD_MAX"]),
    (
        "crates/mongodb/src/store/mongo/connection/client.rs",
        &["LOGIN_INTERVAL_MAX"],
    ),
    ("crates/operate/src/operators/leases.rs", &["FRAME_MAX"]),
    ("crates/host/src/log/throttle.rs", &["REPEAT_MAX"]),
    (
        "crates/kubernetes/src/retry.rs",
        &["BACKOFF_MAX", "RETRY_AFTER_MAX"],
    ),
    ("src/publish/systemd.rs", &["RETRY_INTERVAL_MAX"]),
    // Thresholds for reports.
    ("src/cli/run/files.rs", &["WRITE_MAX"]),
    ("crates/kubernetes/src/queue.rs", &["SAME_WITHIN"]),
];

/// Name suffixes of constants that limit a wait.
const ENDINGS: [&str; 3] = ["_MAX", "_WITHIN", "_WAIT"];

/// Collects the source files below a folder, except tests and the proof crate.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && !["tests", "proof", "target"].contains(&name) {
            sources(&path, found);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            found.push(path);
        }
    }
}

#[test]
fn each_constant_that_limits_a_wait_is_in_the_table() {
    let page = read("docs/architecture.md");
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for folder in ["src", "crates"] {
        sources(&top.join(folder), &mut files);
    }
    let (mut missing, mut excused) = (Vec::new(), 0);
    for file in files {
        let path = file.strip_prefix(top).unwrap().to_str().unwrap();
        let source = read(path);
        let (source, _) = source.split_once("]\nmod tests {").unwrap_or((&source, ""));
        for rest in source.split("const ").skip(1) {
            let Some((name, value)) = rest.split_once(": Duration = ") else {
                continue;
            };
            let bounds = ENDINGS.iter().any(|ending| name.ends_with(ending));
            if !bounds || !value.starts_with("Duration::") || name.contains('\n') {
                continue;
            }
            let is_other =
                |(file, names): &&(&str, &[&str])| *file == path && names.contains(&name);
            if OTHERS.iter().any(|other| is_other(&other)) {
                excused += 1;
            } else if !page.contains(&format!("`{name}`, `{path}`")) {
                missing.push(format!("{path}: {name}"));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
    let others: usize = OTHERS.iter().map(|(_, names)| names.len()).sum();
    assert_eq!(excused, others, "each of `OTHERS` exists");
}

#[test]
fn each_constant_has_the_value_that_the_table_states() {
    let page = read("docs/architecture.md");
    let (_, section) = page.split_once(SECTION).expect("the section");
    let (section, _) = section.split_once("\n## ").expect("the next section");
    for row in section
        .lines()
        .filter(|line| line.starts_with("| "))
        .skip(2)
    {
        let cells: Vec<_> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [_, _, most, _, bound] = cells[..] else {
            panic!("five cells: {row}");
        };
        let [name, path] = quoted(bound)[..] else {
            assert!(["key", "option"].contains(&bound), "{row}");
            assert!(!quoted(most).is_empty(), "names its key or option: {row}");
            continue;
        };
        let value = constant(&read(path), name);
        let value = value.unwrap_or_else(|| panic!("no constant {name} in {path}"));
        let stated = most.split([',', ';', ' ']).collect::<Vec<_>>().join(" ");
        let stated = format!(" {stated} ");
        assert!(
            stated.contains(&format!(" {value} ")),
            "{name} is {value}: {row}"
        );
    }
}

#[test]
fn constants_are_parsed_with_their_values() {
    let source = "/// A.\npub const A: Duration = Duration::from_millis(1_500);\n\
                  const B: Duration = Duration::from_secs(10);";
    assert_eq!(constant(source, "A").as_deref(), Some("1500 ms"));
    assert_eq!(constant(source, "B").as_deref(), Some("10 s"));
    assert_eq!(constant(source, "C"), None);
}
