//! Strings of the shipped sources (log lines, errors, help) and all comments use plain words of the
//! field. The lists hold phrases of a former private dialect.

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

/// Phrases that comments do not use, and plain ones.
const IN_COMMENTS: &[(&str, &str)] = &[
    ("any more", "no longer"),
    ("for ever", "indefinitely"),
    ("somebody", "another process"),
    ("nobody", "no process"),
    ("everybody", "every reader"),
    ("anybody", "any process"),
    ("whoever", "the process that"),
    ("is no", "is not a"),
    ("for people", "for humans"),
    ("to be had", "available"),
];

/// First words of a sentence without a subject.
const OPENERS: &[&str] = &["What", "Who", "Whose", "Whoever", "Whatever", "Whether"];

/// Sentences of rules, for maintainers.
const EXEMPT: &[&str] = &["mutation.rs", "summary.rs"];

fn sources(path: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(path).expect("a readable directory") {
        let path = entry.expect("a readable entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let tests = ["tests", "sim", "model", "tests.rs"].contains(&&*name);
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

/// The paragraphs of the comments of a source, with the lines that they begin in.
fn comments(source: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut open = false;
    for (number, line) in (1..).zip(source.lines()) {
        let comment = line.trim_start().strip_prefix("//");
        let text = comment.map(|text| text.trim_start_matches(['/', '!']).trim());
        match text {
            Some(text) if !text.is_empty() => {
                if !open {
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

/// The words of our comments that stand for something else.
fn odd_words(paragraph: &str) -> Vec<(&'static str, &'static str)> {
    let lower = paragraph.to_lowercase();
    let words = lower.split(|c: char| !c.is_alphanumeric() && c != '\'');
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    let text = format!(" {} ", words.join(" "));
    let text = text
        .replace(" there is no ", " ")
        .replace(" no longer ", " ");
    let has = |odd: &str| text.contains(&format!(" {odd} "));
    let phrases = IN_COMMENTS.iter().copied();
    let mut odd: Vec<_> = phrases.filter(|(odd, _)| has(odd)).collect();
    for sentence in paragraph.split(". ") {
        let first = sentence.split(' ').next().unwrap_or_default();
        let opener = OPENERS.iter().find(|opener| **opener == first);
        odd.extend(opener.map(|opener| (*opener, "a noun")));
    }
    odd
}

fn all_sources(path: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(path).expect("a readable directory") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            all_sources(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with(file!()) {
            into.push(path);
        }
    }
}

#[test]
fn comments_have_the_fields_words() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for part in ["src", "crates", "tests", "benches", "examples"] {
        all_sources(&root.join(part), &mut files);
    }
    assert!(files.len() > 400, "{}", files.len());
    let mut wrong = Vec::new();
    for file in files {
        for (line, paragraph) in comments(&fs::read_to_string(&file).expect("text")) {
            for (odd, instead) in odd_words(&paragraph) {
                let file = file.strip_prefix(root).unwrap_or(&file).display();
                wrong.push(format!(
                    "{file}:{line}: {odd:?}, better {instead:?}: {paragraph}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn paragraphs_are_found_and_their_odd_words() {
    let source =
        "/// Whether it is so.\n///\n//! One that\n//! nobody has. Fine.\nlet a = 1; // not this\n";
    let found = comments(source);
    assert_eq!(found[0], (1, "Whether it is so. ".to_owned()));
    assert_eq!(found[1], (3, "One that nobody has. Fine. ".to_owned()));
    assert_eq!(found.len(), 2);
    let odd = |number: usize| odd_words(&found[number].1).into_iter().map(|(odd, _)| odd);
    assert!(odd(0).eq(["Whether"]));
    assert!(odd(1).eq(["nobody"]));
}

#[test]
fn strings_are_found_whatever_stands_between_them() {
    let source =
        "let a = '\"'; // \"not this\"\nlet b = \"one \\\n    two\";\nlet c = \"th\\\"ree\";";
    let found: Vec<_> = strings(source).into_iter().map(|(_, text)| text).collect();
    assert_eq!(found, ["one two", "th\\\"ree"]);
}
