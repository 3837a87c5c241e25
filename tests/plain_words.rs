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

/// Words that open a sentence without a noun if one of these follows: "One that is idle…".
const PRONOUNS: &[&str] = &["one", "ones", "that", "those", "these"];

/// Words that make a clause of "as it is" complete.
const CLAUSE_ENDS: &[&str] = &[
    "after",
    "afterwards",
    "and",
    "at",
    "before",
    "by",
    "for",
    "here",
    "if",
    "in",
    "now",
    "on",
    "once",
    "or",
    "then",
    "there",
    "until",
    "when",
    "while",
];

/// Words that follow "the same" if a noun is left out.
const AFTER_A_PRONOUN: &[&str] = &[
    "and", "as", "at", "before", "but", "by", "except", "for", "from", "if", "in", "is", "of",
    "on", "one", "ones", "or", "over", "to", "until", "when", "where", "while", "with", "without",
];

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
    let source = source.split("]\nmod tests {").next().unwrap_or("");
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

/// A word in lower case, and whether a clause ends after it.
fn spoken(sentence: &str) -> Vec<(String, bool)> {
    let bare = |c: char| !c.is_alphanumeric() && !"'{}".contains(c);
    let words = sentence.split_whitespace().map(|word| {
        let text = word.trim_matches(bare).to_lowercase();
        (text, word.ends_with(['.', ',', ';', ':', ')', '?', '!']))
    });
    words.filter(|(text, _)| !text.is_empty()).collect()
}

/// The constructions of a sentence that a reader has to resolve, and plain ones. `first` for the
/// first sentence of a paragraph, which no noun precedes.
fn shapes(sentence: &str, first: bool) -> Vec<(&'static str, &'static str)> {
    let spoken = spoken(sentence);
    let word = |at: usize| spoken.get(at).map_or("", |(text, _)| text.as_str());
    let ends = |at: usize| at + 1 >= spoken.len() || spoken[at].1;
    let mut odd = Vec::new();
    let subject = PRONOUNS.contains(&word(0));
    let one_of_them = word(0) == "one" && word(1) == "of" && !["a", "an"].contains(&word(2));
    if subject && ["that", "which", "who", "of"].contains(&word(1)) && !one_of_them {
        odd.push(("One that", "the noun"));
    }
    if word(0) == "by" && word(1) == "this" {
        odd.push(("By this", "the effect as the verb"));
    }
    let conditional = [
        "if", "when", "while", "until", "unless", "as", "because", "since", "once",
    ];
    let early = ["it", "its", "they", "their", "them"];
    let capital = sentence.trim_start().starts_with(char::is_uppercase);
    if first && capital && conditional.contains(&word(0)) && early.contains(&word(1)) {
        odd.push(("\"it\" before its noun", "the noun"));
    }
    for at in 0..spoken.len() {
        let next = word(at + 1);
        match word(at) {
            "the" if ["send", "sending"].contains(&next) => {
                odd.push(("the send", "when it is sent"))
            }
            "the" if next == "same" && ends(at + 1) => odd.push(("the same", "the noun")),
            "the" if next == "same" && AFTER_A_PRONOUN.contains(&word(at + 2)) => {
                odd.push(("the same", "the noun"));
            }
            "of" | "by" | "under" | "with" | "for" | "from" | "until" if next == "which" => {
                let parts = ["each", "some", "all", "many", "most", "one", "none", "both"];
                let partitive = at > 0 && parts.contains(&word(at - 1));
                if at > 0 && !ends(at) && !(partitive && word(at) == "of") {
                    odd.push(("of which, by which", "a clause of its own"));
                }
            }
            "of" if next == "whom" => odd.push(("of whom", "a clause of its own")),
            "as" if ["it", "they"].contains(&next) => {
                let verb = ["is", "are", "was", "were"].contains(&word(at + 2));
                let measure = ["soon", "far", "long", "well", "often"];
                let measured = at > 0 && measure.contains(&word(at - 1));
                let clause = ends(at + 2) || CLAUSE_ENDS.contains(&word(at + 3));
                if verb && clause && !measured {
                    odd.push(("as it is", "unchanged, present"));
                }
            }
            "that" | "those" if next == "of" && !ends(at) => odd.push(("that of", "the noun")),
            "such" if ["a", "an"].contains(&next) => odd.push(("such a", "this, the noun")),
            "one" | "ones" if at > 0 && ["that", "which", "who"].contains(&next) && !ends(at) => {
                odd.push(("one that", "the noun"));
            }
            "anew" => odd.push(("anew", "again")),
            "an" if next == "own" => odd.push(("an own", "its own")),
            "at" if next == "present" => odd.push(("at present", "now, or nothing")),
            "waited"
                if at > 0
                    && ["for", "out"].contains(&next)
                    && ["be", "is", "are", "was", "were", "been"].contains(&word(at - 1)) =>
            {
                odd.push(("is waited for", "the waiting subject first"));
            }
            "no" if ["is", "are"].contains(&word(at + 2)) => {
                let state = ["left", "to"].contains(&word(at + 3));
                if state {
                    odd.push(("no … is left", "what there is, or a verb"));
                }
            }
            _ => {}
        }
    }
    odd
}

/// The sentences of a paragraph, and for each if it is the first.
fn sentences(paragraph: &str) -> impl Iterator<Item = (bool, &str)> {
    let sentences = paragraph.split(". ").flat_map(|part| part.split(": "));
    sentences
        .enumerate()
        .map(|(at, sentence)| (at == 0, sentence))
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

/// The pages, with the texts of the planted bugs left out: those are names of rules in the code.
fn pages() -> Vec<(String, String)> {
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

/// A page with its code blocks emptied, and without "the same" where it repeats the row above.
fn without_listings(text: &str) -> String {
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

/// The paragraphs of comments, strings, pages and templates, with the places that they are from.
fn shipped_prose() -> Vec<(String, String)> {
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
    for (name, text) in pages() {
        add(&name, page(&without_listings(&text)));
    }
    for (name, text) in texts(&["charts", "config", "examples"], &["yaml", "tpl", "toml"]) {
        add(&name, template(&text));
    }
    found
}

#[test]
fn sentences_are_understood_at_first_reading() {
    let prose = shipped_prose();
    assert!(prose.len() > 5000, "{}", prose.len());
    let mut wrong = Vec::new();
    for (place, paragraph) in prose {
        for (first, sentence) in sentences(&paragraph) {
            for (odd, instead) in shapes(sentence, first) {
                wrong.push(format!("{place}: {odd:?}, better {instead}: {sentence}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), wrong.len());
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

#[test]
fn constructions_are_found_and_plain_sentences_are_not() {
    let odd = |text: &str| {
        let found = sentences(text).flat_map(|(first, sentence)| shapes(sentence, first));
        found.map(|(odd, _)| odd).collect::<Vec<_>>()
    };
    for (text, shape) in [
        ("Waits. One that is late is dropped.", "One that"),
        ("Those of waiters are left out.", "One that"),
        ("By this the own hints are skipped.", "By this"),
        (
            "If it is late, the write is dropped.",
            "\"it\" before its noun",
        ),
        ("Time from the send of a write.", "the send"),
        (
            "A set of ten members, of which nine vote.",
            "of which, by which",
        ),
        ("A text by which it is recognized.", "of which, by which"),
        ("A process of whom the guard knows.", "of whom"),
        ("Leaves the entry as it is.", "as it is"),
        ("The lease as it was at the start.", "as it is"),
        ("Both contend for the same.", "the same"),
        ("A peer counts as the same over IPv6.", "the same"),
        ("The name is that of a pod.", "that of"),
        ("No valid holder declares such a duration.", "such a"),
        ("Replaces it by one that leads.", "one that"),
        ("If no descriptor is left.", "no … is left"),
        ("Once no place is to be kept.", "no … is left"),
        ("The stream is opened anew.", "anew"),
        ("Knows an own claim.", "an own"),
        ("No room at present.", "at present"),
        ("A call that is waited for.", "is waited for"),
    ] {
        assert!(odd(text).contains(&shape), "{text}: {:?}", odd(text));
    }
    for text in [
        "One of the members votes, one of a set's three.",
        "Waits for the write. If it is late, it is dropped.",
        "Three members, each of which votes. For which lease?",
        "Prints each line as it is written, as soon as it is complete.",
        "Both contend for the same lease at the same time.",
        "Signals such as these are sent; no call is in flight.",
    ] {
        assert!(odd(text).is_empty(), "{text}: {:?}", odd(text));
    }
}
