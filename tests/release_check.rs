//! Goal: `packaging/release-check` refuses a release whose files disagree on the version or the
//! publisher, or name a placeholder, and names each place. Method: runs the script on copies of the
//! files, with one changed file in each case.

#![allow(clippy::unwrap_used, reason = "a failing fixture should fail the test")]

use std::fs;
use std::path::Path;
use std::process::Command;

use leasehold_testbed::Scratch;

const VERSION: &str = env!("CARGO_PKG_VERSION");
const FILES: [&str; 22] = [
    "CHANGELOG.md",
    "Cargo.lock",
    "Cargo.toml",
    "Dockerfile",
    "README.md",
    "charts/leasehold-cluster/Chart.yaml",
    "charts/leasehold-sidecar/Chart.yaml",
    "charts/leasehold-sidecar/templates/_names.tpl",
    "charts/leasehold/Chart.yaml",
    "clients/java/README.md",
    "clients/java/pom.xml",
    "clients/node/package.json",
    "clients/python/pyproject.toml",
    "docs/image.md",
    "docs/kubernetes.md",
    "docs/packages.md",
    "docs/review.md",
    "docs/tutorial-kubernetes.md",
    "docs/tutorial.md",
    "examples/compose/compose.yaml",
    "examples/cron-job.yaml",
    "examples/sidecar.yaml",
];

/// Files that name the publisher, but no version.
const OWNED: [&str; 8] = [
    ".github/CODEOWNERS",
    ".github/ISSUE_TEMPLATE/config.yml",
    "clients/go/README.md",
    "clients/go/go.mod",
    "clients/node/README.md",
    "clients/python/README.md",
    "docs/book.toml",
    "packaging/owner.toml",
];

/// The publisher of the copies.
const OWNER: &str = r#"
maintainer = "Acme Ltd"
email = "leasehold@acme.test"
reviewers = "@acme/platform"
repository = "https://git.acme.test/platform/leasehold"
site = "https://leasehold.acme.test"
registry = "registry.acme.test/platform"
"#;

/// Copies the files, sets a publisher, and adds a changelog with a section for this version.
fn release() -> Scratch {
    let scratch = Scratch::new();
    for file in FILES.iter().chain(&OWNED) {
        let copy = scratch.path().join(file);
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join(file), copy).unwrap();
    }
    let changelog = format!("# Changelog\n\n## {VERSION} (2026-11-24)\n\nThe first release.\n");
    fs::write(scratch.path().join("CHANGELOG.md"), changelog).unwrap();
    fs::write(scratch.path().join("packaging/owner.toml"), OWNER).unwrap();
    for file in FILES
        .iter()
        .chain(&OWNED)
        .filter(|file| file.ends_with(".md"))
    {
        let path = scratch.path().join(file);
        let text = fs::read_to_string(&path).unwrap();
        let published = text.replace("no public image yet", "a public image");
        let published = published.replace("published yet", "published");
        fs::write(path, published.replace("has not run yet", "has run")).unwrap();
    }
    assert_eq!(owner("write", scratch.path()), (Some(0), String::new()));
    scratch
}

fn run(mut command: Command) -> (Option<i32>, String) {
    let output = command.output().unwrap();
    let shown = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(shown).unwrap())
}

fn owner(action: &str, directory: &Path) -> (Option<i32>, String) {
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/owner"));
    command.arg(action).arg(directory);
    run(command)
}

fn check(version: &str, directory: &Path) -> (Option<i32>, String) {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/release-check");
    let mut command = Command::new(program);
    command.arg(version).arg(directory);
    run(command)
}

#[test]
fn files_that_agree_are_accepted() {
    let release = release();
    assert_eq!(check(VERSION, release.path()), (Some(0), String::new()));
}

#[test]
fn sentences_that_a_release_makes_false_are_refused() {
    let release = release();
    let page = release.path().join("docs/image.md");
    let text = fs::read_to_string(&page).unwrap();
    fs::write(page, format!("There is no public image yet.\n{text}")).unwrap();
    let (code, wrong) = check(VERSION, release.path());
    let expected = "docs/image.md:1: \"no public image yet\" is no longer true\n";
    assert_eq!((code, wrong.as_str()), (Some(1), expected));
}

#[test]
fn a_different_version_is_refused_for_every_file() {
    let release = release();
    let (code, wrong) = check("9.8.7", release.path());
    assert_eq!(code, Some(1));
    for file in FILES {
        assert!(wrong.contains(&format!("{file}: ")), "{file} in {wrong}");
    }
    let missing = "CHANGELOG.md: no section \"## 9.8.7 (YYYY-MM-DD)\"";
    assert!(wrong.contains(missing), "{wrong}");
}

#[test]
fn each_outdated_place_is_named() {
    let own = |text: &str| text.replace("{}", VERSION);
    for (file, from, to, named) in [
        (
            "Cargo.toml",
            "crates/guard\", version = \"{}",
            "crates/guard\", version = \"0.0.9",
            "leasehold-guard is 0.0.9",
        ),
        (
            "Cargo.lock",
            "name = \"leasehold-core\"\nversion = \"{}",
            "name = \"leasehold-core\"\nversion = \"0.0.9",
            "leasehold-core is 0.0.9",
        ),
        (
            "Dockerfile",
            "LEASEHOLD_VERSION={}",
            "LEASEHOLD_VERSION=0.0.9",
            "LEASEHOLD_VERSION is 0.0.9",
        ),
        (
            "charts/leasehold/Chart.yaml",
            "appVersion: {}",
            "appVersion: 0.0.9",
            "appVersion is 0.0.9",
        ),
        (
            "charts/leasehold/Chart.yaml",
            "    version: {}",
            "    version: 0.0.9",
            "version is 0.0.9",
        ),
        (
            "charts/leasehold-sidecar/Chart.yaml",
            "\nversion: {}",
            "\nversion: 0.0.9",
            "version is 0.0.9",
        ),
        (
            "charts/leasehold-cluster/Chart.yaml",
            "\nversion: {}",
            "\nversion: 0.0.9",
            "version is 0.0.9",
        ),
        (
            "charts/leasehold-sidecar/templates/_names.tpl",
            "default \"{}\"",
            "default \"0.0.9\"",
            "default tag is 0.0.9",
        ),
        (
            "examples/sidecar.yaml",
            "leasehold:{}",
            "leasehold:0.0.9",
            "image tag is 0.0.9",
        ),
        (
            "docs/packages.md",
            "leasehold_{}",
            "leasehold_0.0.9",
            "file name is 0.0.9",
        ),
        (
            "docs/tutorial.md",
            "leasehold {} (revision",
            "leasehold 0.0.9 (revision",
            "version is 0.0.9",
        ),
        (
            "clients/node/package.json",
            "\"version\": \"{}\"",
            "\"version\": \"0.0.9\"",
            "version is 0.0.9",
        ),
        (
            "clients/java/pom.xml",
            "\n  <version>{}<",
            "\n  <version>0.0.9<",
            "version is 0.0.9",
        ),
        (
            "clients/java/pom.xml",
            "<groupId>test.acme.git<",
            "<groupId>org.other<",
            "must be '<groupId>test.acme.git</groupId>'",
        ),
        (
            "clients/node/package.json",
            "  \"type\"",
            "  \"private\": true,\n  \"type\"",
            "forbids publication",
        ),
        (
            "clients/go/go.mod",
            "platform/leasehold",
            "other/leasehold",
            "must be 'module git.acme.test/platform/leasehold/clients/go'",
        ),
        (
            "Dockerfile",
            "vendor=\"Acme Ltd\"",
            "vendor=\"Other Ltd\"",
            "must be 'org.opencontainers.image.vendor=\"Acme Ltd\"",
        ),
        (
            "charts/leasehold/Chart.yaml",
            "\nhome:",
            "\nhomes:",
            "has no line like 'home: https://leasehold.acme.test'",
        ),
        ("CHANGELOG.md", "(2026-11-24)", "", "no section"),
        ("CHANGELOG.md", "The first release.", "", "is empty"),
        (
            "CHANGELOG.md",
            "# Changelog\n",
            "# Changelog\n\n## Unreleased\n\n- A change.\n",
            "unreleased changes",
        ),
    ] {
        let release = release();
        let path = release.path().join(file);
        let text = fs::read_to_string(&path).unwrap();
        let changed = text.replacen(&own(from), to, 1);
        assert!(text != changed, "{from} is in {file}");
        fs::write(&path, changed).unwrap();
        let (code, wrong) = check(VERSION, release.path());
        assert_eq!(code, Some(1), "{file}: {from}");
        assert_eq!(wrong.lines().count(), 1, "{wrong}");
        assert!(
            wrong.starts_with(&format!("{file}: ")) && wrong.contains(named),
            "{wrong}"
        );
    }
}

#[test]
fn the_checkout_names_one_publisher_in_all_places() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    assert_eq!(owner("agree", root), (Some(0), String::new()));
}

#[test]
fn a_placeholder_is_refused_and_named() {
    let release = release();
    let path = release.path().join("packaging/owner.toml");
    let placeholders = [
        ("leasehold@acme.test", "leasehold@localhost"),
        ("@acme/platform", "@leasehold/maintainers"),
        ("leasehold.acme.test", "docs.leasehold.example"),
        ("registry.acme.test", "registry.leasehold.example"),
    ];
    for (value, placeholder) in placeholders {
        fs::write(&path, OWNER.replace(value, placeholder)).unwrap();
        assert_eq!(owner("write", release.path()), (Some(0), String::new()));
        let (code, wrong) = check(VERSION, release.path());
        assert_eq!(code, Some(1), "{placeholder}");
        let is_named =
            |line: &str| line.starts_with("packaging/owner.toml: ") && line.contains(placeholder);
        assert!(wrong.lines().all(is_named) && !wrong.is_empty(), "{wrong}");
    }
}

#[test]
fn a_wrong_value_of_the_publisher_is_refused() {
    let release = release();
    let path = release.path().join("packaging/owner.toml");
    for (from, to, named) in [
        (
            "maintainer = \"Acme Ltd\"\n",
            "",
            "maintainer must be a string",
        ),
        ("email =", "mail =", "email must be a string"),
        ("site =", "sites = \"x\"\nsite =", "unknown key sites"),
        ("https://git", "git", "repository must be an https address"),
    ] {
        fs::write(&path, OWNER.replace(from, to)).unwrap();
        let (code, wrong) = owner("write", release.path());
        assert_eq!(code, Some(1), "{wrong}");
        assert!(wrong.contains(named), "{wrong}");
    }
}

#[test]
fn a_version_in_another_format_is_a_usage_error() {
    for wrong in ["", "1.0", "v1.0.0", "1.0.0-rc1"] {
        assert_eq!(check(wrong, Path::new("/")).0, Some(64), "{wrong}");
    }
}
