//! Extracts code blocks, headings and links from a page of the documentation.

use std::fs;
use std::path::{Path, PathBuf};

const SHELLS: [&str; 3] = ["console", "sh", "bash"];

/// Begins the line before a block that no test runs. The reason follows, up to a full stop.
const NOT_RUN: &str = "*Not run by the tests:";

/// Begins the line of a page whose blocks no test runs.
const PAGE_NOT_RUN: &str = "*The tests do not run the commands of this page:";

#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) language: String,
    /// True if the fence is `console terminal`, so the page shows a terminal's output.
    pub(crate) is_on_a_terminal: bool,
    pub(crate) text: String,
    pub(crate) line: usize,
    /// The last line of text above the block, which may say that no test runs the block.
    before: String,
}

impl Block {
    pub(crate) fn is_shell(&self) -> bool {
        SHELLS.contains(&self.language.as_str())
    }

    /// True if the page states that no test runs the block, and why.
    pub(crate) fn is_marked_not_run(&self) -> bool {
        let marks = [NOT_RUN, PAGE_NOT_RUN].into_iter();
        let mut reasons = marks.filter_map(|mark| self.before.strip_prefix(mark));
        reasons.any(|reason| reason.trim().len() > ".*".len() && reason.ends_with(".*"))
    }

    /// Returns the name of the file that the block contains, from a comment in the first line or
    /// after `#!`. Returns `None` for an absolute path, such as `/etc/fstab`, because a test must
    /// not write to it.
    pub(crate) fn file(&self) -> Option<&str> {
        let mut lines = self.text.lines();
        let first = lines.find(|line| !line.starts_with("#!"))?;
        let comments = ["# ", "// ", "-- ", "; "];
        let in_xml = || first.strip_prefix("<!-- ")?.strip_suffix(" -->");
        let name = comments
            .iter()
            .find_map(|start| first.strip_prefix(start))
            .or_else(in_xml)?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
        let is_below = !name.starts_with('/') && !name.contains("..");
        (self.language != "console" && is_below && name.chars().all(is_name)).then_some(name)
    }
}

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn text(page: &str) -> String {
    fs::read_to_string(root().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"))
}

/// Returns the paths of all pages, relative to the repository.
pub(crate) fn pages() -> Vec<String> {
    fn collect(directory: &Path, into: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, into);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                into.push(path);
            }
        }
    }
    let mut found = Vec::new();
    collect(&root().join("docs"), &mut found);
    let relative = |path: &PathBuf| path.strip_prefix(root()).unwrap().display().to_string();
    let mut found: Vec<_> = found.iter().map(relative).collect();
    found.sort();
    found
}

pub(crate) fn blocks(text: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let of_page = text.lines().find(|line| line.starts_with(PAGE_NOT_RUN));
    let mut before = "";
    let mut lines = text.lines().zip(1..);
    while let Some((line, number)) = lines.next() {
        if let Some(info) = line.strip_prefix("```") {
            let (language, terminal) = info.split_once(' ').unwrap_or((info, ""));
            let inside = lines.by_ref().take_while(|(line, _)| *line != "```");
            let inside: Vec<_> = inside.map(|(line, _)| format!("{line}\n")).collect();
            found.push(Block {
                language: language.to_owned(),
                is_on_a_terminal: terminal == "terminal",
                text: inside.concat(),
                line: number,
                before: of_page.unwrap_or(before).to_owned(),
            });
            before = "";
        } else if !line.trim().is_empty() {
            before = line;
        }
    }
    found
}

/// Returns the section with this heading. The lines keep their numbers on the page.
pub(crate) fn section(text: &str, heading: &str) -> String {
    let mut inside = false;
    let mut fenced = false;
    let lines = text.lines().map(|line| {
        fenced ^= line.starts_with("```");
        if !fenced && line.starts_with("## ") {
            inside = line == format!("## {heading}");
        }
        if inside { line } else { "" }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the lines of a page outside fenced blocks, without inline code.
pub(crate) fn prose(text: &str) -> String {
    let mut fenced = false;
    let mut prose = String::new();
    for line in text.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            prose.push_str(line);
            prose.push('\n');
        }
    }
    let parts = prose.split('`').enumerate();
    parts
        .map(|(n, part)| if n % 2 == 0 { part } else { "CODE" })
        .collect()
}

/// Returns the anchors that GitHub and mdBook generate from a page's headings.
pub(crate) fn anchors(text: &str) -> Vec<String> {
    let mut fenced = false;
    let mut found: Vec<String> = Vec::new();
    for line in text.lines() {
        fenced ^= line.starts_with("```");
        let heading = line.trim_start_matches('#');
        if fenced || !line.starts_with('#') || !heading.starts_with(' ') {
            continue;
        }
        let lower = heading.trim().to_lowercase();
        let kept = lower.chars().filter_map(|c| match c {
            ' ' => Some('-'),
            '-' | '_' => Some(c),
            c => c.is_alphanumeric().then_some(c),
        });
        let anchor: String = kept.collect();
        let times = found.iter().filter(|other| **other == anchor).count();
        found.push(match times {
            0 => anchor,
            times => format!("{anchor}-{times}"),
        });
    }
    found
}

#[test]
fn blocks_have_their_language_their_mark_and_their_file() {
    let text =
        "a\n```console\n$ b\n```\n\n*Not run by the tests: it needs c.*\n\n```sh\n# d.sh\ne\n```\n";
    let found = blocks(text);
    assert_eq!(found.len(), 2);
    assert!(found[0].is_shell() && !found[0].is_marked_not_run());
    assert_eq!((found[0].text.as_str(), found[0].file()), ("$ b\n", None));
    assert!(found[1].is_shell() && found[1].is_marked_not_run());
    assert_eq!((found[1].line, found[1].file()), (8, Some("d.sh")));
    let script = "```sh\n#!/bin/sh\n# e\nf\n```\n";
    assert_eq!(blocks(script)[0].file(), Some("e"));
    for outside in ["/etc/fstab", "../d.sh"] {
        assert_eq!(
            blocks(&format!("```sh\n# {outside}\n```\n"))[0].file(),
            None
        );
    }
    let terminal = blocks("```console terminal\n$ f\n```\n");
    assert!(terminal[0].is_shell() && terminal[0].is_on_a_terminal && !found[0].is_on_a_terminal);
    let unexplained = blocks("*Not run by the tests:.*\n\n```sh\n```\n");
    assert!(!unexplained[0].is_marked_not_run());
    let page = blocks(&format!(
        "{PAGE_NOT_RUN} a.*\n\n```sh\n```\nb\n```sh\n```\n"
    ));
    assert!(page.iter().all(Block::is_marked_not_run));
}

#[test]
fn a_section_ends_at_the_next_heading() {
    let text = "# A\n## B\n```sh\n## c\n```\n## D\ne\n";
    assert_eq!(section(text, "B"), "\n## B\n```sh\n## c\n```\n\n");
}

#[test]
fn anchors_are_those_of_the_sites() {
    let text = "# A b\n## `[c]` d-e, f?\n```\n# no\n```\n## A b\n";
    assert_eq!(anchors(text), ["a-b", "c-d-e-f", "a-b-1"]);
}
