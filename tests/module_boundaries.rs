//! Goal: no module depends on a module or crate that docs/architecture.md forbids it to use.

use std::fs;
use std::path::{Path, PathBuf};

struct Rule {
    part: &'static [&'static str],
    forbidden: &'static [&'static str],
    why: &'static str,
}

const RULES: &[Rule] = &[
    Rule {
        part: &[
            "crates/core/src/claim.rs",
            "crates/core/src/election.rs",
            "crates/core/src/election",
            "crates/core/src/lock.rs",
            "crates/core/src/lock",
            "crates/core/src/deadline_policy.rs",
        ],
        forbidden: &[
            "Instant::now",
            "SystemTime",
            "std::env",
            "std::fs",
            "std::net",
            "std::thread",
        ],
        why: "the core receives the time and all outcomes as inputs, and does no I/O",
    },
    Rule {
        part: &["crates/core/src/claim.rs"],
        forbidden: &["Lease", "Lock", "Operation"],
        why: "the code that leases and locks share must not depend on either protocol",
    },
    Rule {
        part: &["crates/mongodb/src/store.rs", "crates/mongodb/src/store"],
        forbidden: &[
            "crate::elector",
            "crate::locker",
            "Election",
            "LockContender",
        ],
        why: "a store must not make decisions or depend on its users",
    },
    Rule {
        part: &[
            "crates/mongodb/src/calls.rs",
            "crates/mongodb/src/elector/host.rs",
        ],
        forbidden: &["mongo", "tracing", "crate::locker"],
        why: "calls and the I/O of an election depend on interfaces, not on implementations",
    },
    Rule {
        part: &["src/publish.rs", "src/publish", "src/admin.rs", "src/admin"],
        forbidden: &[
            "mongodb::",
            "crate::config",
            "crate::cli",
            "crate::elector",
            "Election",
        ],
        why: "a surface publishes a status and must not depend on its source",
    },
    Rule {
        part: &[
            "crates/kubernetes/src",
            "crates/metrics/src",
            "crates/status/src",
        ],
        forbidden: &["::elector", "::locker", "Election"],
        why: "a surface publishes a status and must not depend on its source",
    },
    Rule {
        part: &["crates/guard/src"],
        forbidden: &["Election", "LockContender"],
        why: "a guard receives deadlines and must not depend on their source",
    },
    Rule {
        part: &["crates/supervisor/src"],
        forbidden: &["Election"],
        why: "a supervisor applies the desired state and must not depend on the election",
    },
    Rule {
        part: &["src", "crates"],
        forbidden: &[
            "mod util",
            "mod helpers",
            "mod common",
            "mod misc",
            "mod types",
        ],
        why: "an item belongs to the module of the concept that it serves",
    },
];

const LINES_MAX: usize = 500;

fn rust_files(path: &Path, into: &mut Vec<PathBuf>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).expect("a readable directory") {
            rust_files(&entry.expect("a readable entry").path(), into);
        }
    } else if path.extension().is_some_and(|e| e == "rs") {
        into.push(path.to_owned());
    }
}

fn sources(parts: &[&str]) -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for part in parts {
        rust_files(&root.join(part), &mut files);
    }
    assert!(!files.is_empty(), "no sources under {parts:?}");
    files
        .into_iter()
        .map(|file| (file.clone(), fs::read_to_string(file).expect("text")))
        .collect()
}

fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

#[test]
fn no_module_imports_a_forbidden_module() {
    let mut broken = Vec::new();
    for rule in RULES {
        // Tests are exempt, because they may read files, such as expected results.
        let shipped = sources(rule.part).into_iter().filter(|(file, _)| {
            let parts = file.components().any(|part| part.as_os_str() == "tests");
            !parts && !file.ends_with("tests.rs")
        });
        for (file, text) in shipped {
            for (number, line) in text.lines().enumerate() {
                for word in rule
                    .forbidden
                    .iter()
                    .filter(|word| code(line).contains(**word))
                {
                    let line = number + 1;
                    broken.push(format!("{}:{line}: {word}: {}", file.display(), rule.why));
                }
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn no_file_exceeds_the_line_limit() {
    let long: Vec<_> = sources(&["src", "crates", "tests", "benches"])
        .into_iter()
        .map(|(file, text)| (file, text.lines().count()))
        .filter(|(_, lines)| *lines > LINES_MAX)
        .collect();
    assert_eq!(
        long,
        [],
        "files over the limit: split them by responsibility"
    );
}
