//! What people read (log lines, errors, help) uses the field's words: strings
//! of the shipped sources have none of those that stand for something else.

use std::fs;
use std::path::{Path, PathBuf};

/// A phrase of ours, and the field's.
const PHRASES: &[(&str, &str)] = &[
    ("any more", "no longer"),
    ("for ever", "indefinitely"),
    ("trying again", "retrying"),
    ("asking again", "retrying"),
    ("took out", "removed, evicted"),
    ("take out", "remove, evict"),
    ("somebody", "another process"),
    ("whoever", "the holder, the caller"),
    ("is dead", "has exited, has expired"),
    ("is silent", "is unresponsive, has expired"),
    ("is no ", "is not a"),
    ("look at the", "check"),
    ("cannot be understood", "invalid"),
    ("be had", "available"),
];

/// Sentences of rules, for maintainers.
const EXEMPT: &[&str] = &["mutation.rs", "summary.rs"];

fn sources(path: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(path).expect("a readable directory") {
        let path = entry.expect("a readable entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let tests = ["tests", "sim", "lock_sim", "model", "tests.rs"].contains(&&*name);
        if tests || EXEMPT.contains(&&*name) || name.starts_with("any_") {
            continue;
        }
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.push(path);
        }
    }
}

/// The string literals of a source, with the lines that they begin in.
/// Continued lines are joined.
fn strings(source: &str) -> Vec<(usize, String)> {
    let source = source.split("#[cfg(test)]\nmod tests").next().unwrap_or("");
    let mut found = Vec::new();
    let mut chars = source.chars().peekable();
    let mut line = 1;
    let mut before = ' ';
    while let Some(c) = chars.next() {
        match c {
            '\n' => line += 1,
            '/' if chars.peek() == Some(&'/') => while chars.next_if(|c| *c != '\n').is_some() {},
            // A quote as a character.
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

#[test]
fn what_people_read_has_the_fields_words() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for part in ["src", "crates"] {
        sources(&root.join(part), &mut files);
    }
    assert!(files.len() > 100, "{}", files.len());
    let mut seen = 0;
    let mut wrong = Vec::new();
    for file in files {
        for (line, text) in strings(&fs::read_to_string(&file).expect("text")) {
            seen += 1;
            let text = text.replace("there is no ", "").replace("is no longer", "");
            for (phrase, instead) in PHRASES.iter().filter(|(phrase, _)| text.contains(phrase)) {
                let file = file.strip_prefix(root).unwrap_or(&file).display();
                wrong.push(format!(
                    "{file}:{line}: {phrase:?}, better {instead:?}: {text}"
                ));
            }
        }
    }
    assert!(seen > 1000, "{seen}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn strings_are_found_whatever_stands_between_them() {
    let source =
        "let a = '\"'; // \"not this\"\nlet b = \"one \\\n    two\";\nlet c = \"th\\\"ree\";";
    let found: Vec<_> = strings(source).into_iter().map(|(_, text)| text).collect();
    assert_eq!(found, ["one two", "th\\\"ree"]);
}
