//! Extracts the texts that users and maintainers read from the repository's files.

use std::fs;
use std::path::{Path, PathBuf};

pub(super) fn sources(path: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(path).expect("a readable directory") {
        let path = entry.expect("a readable entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let tests = ["tests", "proof", "tests.rs"].contains(&&*name);
        if tests || name.starts_with("any_") {
            continue;
        }
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.push(path);
        }
    }
}

/// Returns the string literals of a source and their line numbers. Joins continued lines.
pub(super) fn strings(source: &str) -> Vec<(usize, String)> {
    let source = source.split("]\nmod tests {").next().unwrap_or("");
    let mut found = Vec::new();
    let mut chars = source.chars().peekable();
    let mut line = 1;
    let mut before = ' ';
    while let Some(c) = chars.next() {
        match c {
            '\n' => line += 1,
            '/' if chars.peek() == Some(&'/') => while chars.next_if(|c| *c != '\n').is_some() {},
            // This quote is a character literal, not the start of a string.
            '"' if before == '\'' && chars.peek() == Some(&'\'') => {}
            '"' => {
                let (began, mut text) = (line, String::new());
                while let Some(c) = chars.next() {
                    match c {
                        '"' => break,
                        '\\' if chars.peek() == Some(&'\n') => {
                            while let Some(blank) = chars.next_if(|c| c.is_whitespace()) {
                                line += usize::from(blank == '\n');
                            }
                        }
                        '\\' => {
                            text.push(c);
                            text.extend(chars.next());
                        }
                        c => {
                            line += usize::from(c == '\n');
                            text.push(c);
                        }
                    }
                }
                found.push((began, text));
            }
            _ => {}
        }
        before = c;
    }
    found
}

pub(super) fn comments(source: &str) -> Vec<(usize, String)> {
    paragraphs(source, |line| {
        let comment = line.trim_start().strip_prefix("//")?;
        Some(comment.trim_start_matches(['/', '!']))
    })
}

/// Returns the paragraphs of a page, without inline code, and their line numbers.
pub(super) fn page(source: &str) -> Vec<(usize, String)> {
    // Headings are not sentences.
    let mut found = paragraphs(source, |line| (!line.starts_with('#')).then_some(line));
    for (_, paragraph) in &mut found {
        let parts = paragraph.split('`').enumerate();
        *paragraph = parts
            .map(|(n, text)| if n % 2 == 0 { text } else { "CODE" })
            .collect();
        // Each table cell begins a sentence.
        *paragraph = paragraph.replace("| ", ". ");
    }
    found
}

/// Returns the paragraphs of a template or a values file, and their line numbers.
pub(super) fn template(source: &str) -> Vec<(usize, String)> {
    paragraphs(source, |line| {
        Some(line.trim_start().trim_start_matches('#'))
    })
}

pub(super) fn texts(paths: &[&str], extensions: &[&str]) -> Vec<(String, String)> {
    fn collect(path: &Path, into: &mut Vec<PathBuf>) {
        if !path.is_dir() {
            return into.push(path.to_owned());
        }
        // One chart contains the other chart as a symbolic link.
        if path.is_symlink() {
            return;
        }
        for entry in fs::read_dir(path).expect("a readable directory") {
            collect(&entry.expect("a readable entry").path(), into);
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for path in paths {
        collect(&root.join(path), &mut files);
    }
    files.retain(|file| {
        let extension = file.extension().and_then(|extension| extension.to_str());
        extension.is_some_and(|it| extensions.contains(&it)) && !file.ends_with(file!())
    });
    let named = |file: PathBuf| {
        let name = file
            .strip_prefix(root)
            .unwrap_or(&file)
            .display()
            .to_string();
        (name, fs::read_to_string(file).expect("text"))
    };
    files.into_iter().map(named).collect()
}

pub(super) fn rust_texts() -> Vec<(String, String)> {
    let found = texts(&["src", "crates", "tests", "benches", "examples"], &["rs"]);
    assert!(found.len() > 400, "{}", found.len());
    found
}

/// Returns all pages except the list of planted bugs, which is generated from the code.
pub(super) fn pages() -> Vec<(String, String)> {
    let roots = [
        "docs",
        "README.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "CHANGELOG.md",
    ];
    let mut found = texts(
        &[&roots[..], &["charts", "clients", "examples"]].concat(),
        &["md", "txt"],
    );
    found.retain(|(file, _)| !file.ends_with("planted-bugs.md"));
    found
}

/// Removes code blocks from a page, and replaces "the same" in table cells that repeat the row
/// above.
pub(super) fn without_listings(text: &str) -> String {
    let mut within = false;
    let lines = text.lines().map(|line| {
        let fence = line.trim_start().starts_with("```");
        within ^= fence;
        let kept = if within || fence { "" } else { line };
        match kept.starts_with('|') {
            true => kept
                .replace("| the same", "| as above")
                .replace(": the same", ": as above"),
            false => kept.to_owned(),
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the paragraphs of comments, strings, pages and templates, with their files and lines.
pub(super) fn shipped_prose() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for part in ["src", "crates"] {
        sources(&root.join(part), &mut files);
    }
    let mut found = Vec::new();
    let mut add = |file: &str, paragraphs: Vec<(usize, String)>| {
        let at = |(line, text)| (format!("{file}:{line}"), text);
        found.extend(paragraphs.into_iter().map(at));
    };
    for file in files {
        let text = fs::read_to_string(&file).expect("text");
        let name = file
            .strip_prefix(root)
            .unwrap_or(&file)
            .display()
            .to_string();
        let shipped = text.split("]\nmod tests {").next().unwrap_or("");
        add(&name, comments(shipped));
        let mut messages = strings(&text);
        messages.retain(|(_, text)| text.matches(' ').count() > 1);
        add(&name, messages);
    }
    // Adds the comments of the tests, benchmarks, examples and the proof crate, but not of the other
    // crates' unit tests.
    let read = ["tests/", "benches/", "examples/", "crates/proof/"];
    let unread = "tests/plain_words/";
    for (name, text) in rust_texts() {
        if read.iter().any(|room| name.starts_with(room)) && !name.starts_with(unread) {
            add(&name, comments(&text));
        }
    }
    for (name, text) in pages() {
        add(&name, page(&without_listings(&text)));
    }
    for (name, text) in texts(&["charts", "config", "examples"], &["yaml", "tpl", "toml"]) {
        add(&name, template(&text));
    }
    found
}

/// Joins consecutive lines for which `text` returns a value into paragraphs. Returns the paragraphs
/// with their line numbers.
pub(super) fn paragraphs<'a>(
    source: &'a str,
    mut text: impl FnMut(&'a str) -> Option<&'a str>,
) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut open = false;
    for (number, line) in (1..).zip(source.lines()) {
        match text(line).map(str::trim) {
            Some(text) if !text.is_empty() => {
                if !open || text.starts_with(['|', '-', '*', '{']) {
                    found.push((number, String::new()));
                }
                let (_, paragraph) = found.last_mut().expect("it was pushed");
                paragraph.push_str(text);
                paragraph.push(' ');
                open = true;
            }
            Some(_) | None => open = false,
        }
    }
    found
}
