//! Strings of the shipped sources (log lines, errors, help), comments, names of functions, the docs
//! and the texts of the charts use plain words of the field. The lists hold phrases of a former
//! private dialect.

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

/// Phrases that comments and docs do not use, and plain ones.
const IN_PROSE: &[(&str, &str)] = &[
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
    ("beside", "alongside, in addition to"),
];

/// Words that names of functions do not contain, and plain ones.
const IN_NAMES: &[(&str, &str)] = &[
    ("any_more", "no longer"),
    ("for_ever", "indefinitely"),
    ("is_no", "is not a"),
    ("somebody", "another process"),
    ("nobody", "no process"),
    ("everybody", "all"),
    ("anybody", "any"),
    ("whoever", "the process that"),
    ("whom", "the process that"),
    ("beside", "alongside"),
    ("told", "reported, notified"),
    ("tells", "reports"),
    ("hears", "receives"),
    ("heard", "received"),
    ("obeyed", "applied"),
    ("obeys", "applies"),
    ("believed", "trusted"),
    ("dead", "expired, exited"),
    ("silent", "unresponsive"),
    ("ill", "unhealthy"),
    ("deaf", "unresponsive"),
];

/// First words of a name without a subject.
const NAME_OPENERS: &[&str] = &["what", "who", "whose", "whoever", "whatever"];

/// First words of a sentence without a subject.
const OPENERS: &[&str] = &["What", "Who", "Whose", "Whoever", "Whatever", "Whether"];

/// Sentences of rules, for maintainers.
const EXEMPT: &[&str] = &["summary.rs"];

fn sources(path: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(path).expect("a readable directory") {
        let path = entry.expect("a readable entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let tests = ["tests", "proof", "tests.rs"].contains(&&*name);
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
    let source = source.split("]\nmod tests").next().unwrap_or("");
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
fn strings_have_the_fields_words() {
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
    paragraphs(source, |line| {
        let comment = line.trim_start().strip_prefix("//")?;
        Some(comment.trim_start_matches(['/', '!']))
    })
}

/// The paragraphs of the lines for which `text` returns a text, with the lines that they begin in.
fn paragraphs<'a>(
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

/// The paragraphs of a page, without inline code, with the lines that they begin in.
fn page(source: &str) -> Vec<(usize, String)> {
    // Headings are not sentences.
    let mut found = paragraphs(source, |line| (!line.starts_with('#')).then_some(line));
    for (_, paragraph) in &mut found {
        let parts = paragraph.split('`').enumerate();
        *paragraph = parts
            .map(|(n, text)| if n % 2 == 0 { text } else { "CODE" })
            .collect();
        // A cell of a table begins a sentence.
        *paragraph = paragraph.replace("| ", ". ");
    }
    found
}

/// The paragraphs of a template or of a file of values, with the lines that they begin in.
fn template(source: &str) -> Vec<(usize, String)> {
    paragraphs(source, |line| {
        Some(line.trim_start().trim_start_matches('#'))
    })
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
    let phrases = IN_PROSE.iter().copied();
    let mut odd: Vec<_> = phrases.filter(|(odd, _)| has(odd)).collect();
    for sentence in paragraph.split(". ") {
        let sentence = sentence.trim_start_matches(|c: char| !c.is_alphanumeric());
        let first = sentence.split(' ').next().unwrap_or_default();
        let first = first.trim_end_matches('*');
        let opener = OPENERS.iter().find(|opener| **opener == first);
        let opener = opener.filter(|_| !sentence.trim_end().ends_with('?'));
        odd.extend(opener.map(|opener| (*opener, "a noun")));
    }
    odd
}

/// The files below these paths with one of these extensions, and their texts.
fn texts(paths: &[&str], extensions: &[&str]) -> Vec<(String, String)> {
    fn collect(path: &Path, into: &mut Vec<PathBuf>) {
        if !path.is_dir() {
            return into.push(path.to_owned());
        }
        // The charts contain each other by a link.
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

fn rust_texts() -> Vec<(String, String)> {
    let found = texts(&["src", "crates", "tests", "benches", "examples"], &["rs"]);
    assert!(found.len() > 400, "{}", found.len());
    found
}

/// Checks the paragraphs that `prose` finds in these texts.
fn check(files: Vec<(String, String)>, prose: impl Fn(&str) -> Vec<(usize, String)>) {
    let (mut seen, mut wrong) = (0, Vec::new());
    for (file, text) in files {
        for (line, paragraph) in prose(&text) {
            seen += 1;
            for (odd, instead) in odd_words(&paragraph) {
                wrong.push(format!(
                    "{file}:{line}: {odd:?}, better {instead:?}: {paragraph}"
                ));
            }
        }
    }
    assert!(seen > 100, "{seen}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn comments_have_the_fields_words() {
    check(rust_texts(), comments);
}

#[test]
fn docs_have_the_fields_words() {
    let roots = [
        "docs",
        "README.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "CHANGELOG.md",
    ];
    let pages = [&roots[..], &["charts", "clients", "examples"]].concat();
    check(texts(&pages, &["md", "txt"]), page);
}

#[test]
fn charts_and_configuration_have_the_fields_words() {
    let files = texts(&["charts", "config", "examples"], &["yaml", "tpl", "toml"]);
    check(files, template);
}

#[test]
fn names_of_functions_have_the_fields_words() {
    let mut wrong = Vec::new();
    for (file, text) in rust_texts() {
        let names = text.split("fn ").skip(1).map(|rest| {
            let end = rest.find(|c: char| c != '_' && !c.is_ascii_alphanumeric());
            &rest[..end.unwrap_or(rest.len())]
        });
        // Short names are those of values and accessors.
        for name in names.filter(|name| name.matches('_').count() > 1) {
            let within = format!("_{name}_").replace("_there_is_no_", "_");
            let within = within.replace("_no_longer_", "_");
            let has = |odd: &str| within.contains(&format!("_{odd}_"));
            let phrases = IN_NAMES.iter().filter(|(odd, _)| has(odd)).copied();
            let openers = NAME_OPENERS.iter().filter(|opener| {
                let invariant = |c: char| c == 'i' || c.is_ascii_digit() || c == '_';
                let name = name.trim_start_matches(invariant);
                name.strip_prefix(**opener)
                    .is_some_and(|rest| rest.starts_with('_'))
            });
            let odd = phrases.chain(openers.map(|opener| (*opener, "a noun")));
            wrong.extend(
                odd.map(|(odd, instead)| format!("{file}: {odd:?}, better {instead:?}: {name}")),
            );
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
fn strings_are_found_between_comments_and_characters() {
    let source =
        "let a = '\"'; // \"not this\"\nlet b = \"one \\\n    two\";\nlet c = \"th\\\"ree\";";
    let found: Vec<_> = strings(source).into_iter().map(|(_, text)| text).collect();
    assert_eq!(found, ["one two", "th\\\"ree"]);
}

#[test]
fn pages_are_read_without_inline_code_and_templates_with_their_comments() {
    let text = "One `nobody` is\n| Whether | **Who** is | Who? |\n";
    let found = page(text);
    assert_eq!(found[0], (1, "One CODE is ".to_owned()));
    assert_eq!((found.len(), odd_words(&found[1].1).len()), (2, 2));
    let found = template("a: {{- /* One\ntwo. */}}\n\n{{/* What\n# -- Five\n");
    let odd: Vec<_> = found
        .iter()
        .flat_map(|(at, text)| odd_words(text).into_iter().map(move |it| (*at, it.0)))
        .collect();
    assert_eq!(odd, [(4, "What")]);
}
