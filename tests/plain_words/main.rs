//! Checks that log lines, errors, help texts, comments, function names, docs and charts use plain
//! words of the field. The lists contain phrases to avoid, with replacements.

mod shapes;
mod texts;

use std::fs;
use std::path::Path;

use shapes::{sentences, shapes};
use texts::{comments, page, rust_texts, shipped_prose, sources, strings, template, texts};

/// Phrases that shipped strings must not contain, with replacements.
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

/// Phrases that comments and docs must not contain, with replacements.
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

/// Words that function names must not contain, with replacements.
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

/// Words that must not begin a function name, because the name would lack a subject.
const NAME_OPENERS: &[&str] = &["what", "who", "whose", "whoever", "whatever"];

/// Words that must not begin a sentence, because the sentence would lack a subject.
const OPENERS: &[&str] = &["What", "Who", "Whose", "Whoever", "Whatever", "Whether"];

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

/// Returns the words to avoid in a paragraph, with replacements.
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

/// Asserts that the paragraphs that `prose` extracts from these files contain no words to avoid.
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
        // Names of one or two words are usually values and accessors.
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
