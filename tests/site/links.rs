//! Checks that the table of contents lists every page, and that every link leads to an existing
//! file and heading.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use crate::page::{anchors, pages, prose, root, text};

/// Pages outside `docs` whose links are checked too.
const OTHERS: [&str; 4] = [
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
];

const SUMMARY: &str = "docs/SUMMARY.md";

fn links(text: &str) -> Vec<String> {
    let prose = prose(text);
    let rests = prose.split("](").skip(1);
    let ends = rests.filter_map(|rest| rest.split_once(')'));
    ends.map(|(link, _)| link.to_owned()).collect()
}

/// Resolves `..` in a path without accessing the file system.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => assert!(normal.pop(), "{}", path.display()),
            component => normal.push(component),
        }
    }
    normal
}

fn error(page: &str, link: &str) -> Option<String> {
    if link.starts_with("https://") {
        return None;
    }
    let (file, anchor) = match link.split_once('#') {
        Some((file, anchor)) => (file, Some(anchor)),
        None => (link, None),
    };
    let target = match file {
        "" => PathBuf::from(page),
        file => normal(&Path::new(page).parent().unwrap().join(file)),
    };
    // The published site contains only the files below `docs`.
    if page.starts_with("docs/") && !target.starts_with("docs") {
        return Some(format!("{page}: {link} leaves docs"));
    }
    if !root().join(&target).exists() {
        return Some(format!("{page}: {link}: there is no such file"));
    }
    let anchor = anchor?;
    let anchors = anchors(&text(target.to_str().unwrap()));
    (!anchors.iter().any(|found| found == anchor))
        .then(|| format!("{page}: {link}: no such heading among {anchors:?}"))
}

#[test]
fn every_page_is_in_the_table_of_contents_once() {
    let listed = links(&text(SUMMARY));
    let unique: BTreeSet<_> = listed.iter().map(|link| format!("docs/{link}")).collect();
    assert_eq!(unique.len(), listed.len(), "{listed:?}");
    let pages: BTreeSet<_> = pages().into_iter().filter(|page| page != SUMMARY).collect();
    assert_eq!(unique, pages);
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let pages = pages().into_iter().chain(OTHERS.map(str::to_owned));
    let mut seen = 0;
    let mut wrong = Vec::new();
    for page in pages {
        for link in links(&text(&page)) {
            seen += 1;
            wrong.extend(error(&page, &link));
        }
    }
    assert!(seen > 150, "{seen}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the repository paths that a page names in inline code.
fn named_paths(text: &str) -> Vec<String> {
    let parts = [
        "tests/",
        "src/",
        "crates/",
        "examples/",
        "charts/",
        "config/",
        "docs/",
    ];
    let mut fenced = false;
    let mut found = Vec::new();
    for line in text.lines() {
        fenced ^= line.starts_with("```");
        if fenced {
            continue;
        }
        for code in line.split('`').skip(1).step_by(2) {
            let is_path = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
            if parts.iter().any(|part| code.starts_with(part)) && code.chars().all(is_path) {
                found.push(code.to_owned());
            }
        }
    }
    found
}

#[test]
fn every_path_that_a_review_would_open_exists() {
    // This page names paths relative to a crate.
    let other = "docs/architecture.md";
    let pages = pages().into_iter().filter(|page| page != other);
    let (mut seen, mut wrong) = (0, Vec::new());
    for page in pages.chain(OTHERS.map(str::to_owned)) {
        for path in named_paths(&text(&page)) {
            seen += 1;
            if !root().join(&path).exists() {
                wrong.push(format!("{page}: {path}"));
            }
        }
    }
    assert!(seen > 80, "{seen}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_file_of_the_architecture_exists() {
    let below = [
        "",
        "crates/mongodb/src",
        "crates/core/src",
        "crates/guard/src",
        "crates/operate/src",
        "src",
    ];
    let page = text("docs/architecture.md");
    let names = page.split('`').skip(1).step_by(2);
    let (mut seen, mut wrong) = (0, Vec::new());
    for name in names.filter(|name| name.ends_with(".rs") && !name.contains(' ')) {
        seen += 1;
        if !below
            .iter()
            .any(|room| root().join(room).join(name).exists())
        {
            wrong.push(name);
        }
    }
    assert!(seen > 50, "{seen}");
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn links_that_lead_nowhere_are_found() {
    assert_eq!(error("README.md", "docs/locks.md#waiting"), None);
    for wrong in ["docs/lock.md", "docs/locks.md#wait", "#no-such-heading"] {
        assert!(error("README.md", wrong).is_some(), "{wrong}");
    }
    assert!(error("docs/locks.md", "../README.md").is_some());
    assert_eq!(
        links("[a](b.md) `[c](d.md)`\n```\n[e](f.md)\n```\n"),
        ["b.md"]
    );
}
