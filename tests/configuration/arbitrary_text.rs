//! Goal: no input in any layer causes a panic or reveals a connection string. Method: generates
//! random files, variables and values, some with mistakes next to a connection string. On failure,
//! prints the smallest failing input that it found.

use leasehold::config::{KEYS, Sources};
use leasehold::uri::ConnectionUri;
use leasehold_testbed::{Mutator, corpus};
use proptest::prelude::*;

use crate::setup::{Files, sources};

const SECRET: &str = "zq9secretzq9";

fn shown(sources: &Sources) -> String {
    let loaded = format!("{sources:?}\n{:?}", sources.load());
    let config = match sources.load().config() {
        Ok(config) => format!("{config:?}"),
        Err(error) => format!("{error}\n{error:?}"),
    };
    let settings = match sources.load().settings() {
        Ok(settings) => format!("{settings:?}"),
        Err(error) => format!("{error}\n{error:?}"),
    };
    [loaded, config, settings].join("\n")
}

fn fragments() -> impl Strategy<Value = String> {
    let fragment = prop_oneof![
        Just("[lease]\n".to_owned()),
        Just("[mongodb]\n".to_owned()),
        Just("mongodb:\n".to_owned()),
        Just("name = \"a\"\n".to_owned()),
        Just("  uri: ".to_owned()),
        Just("uri = ".to_owned()),
        Just("= [{\"'#\n".to_owned()),
        Just("\"\"\"".to_owned()),
        Just(format!("mongodb://u:{SECRET}@h")),
        Just(format!("\"mongodb+srv://u:{SECRET}@h/?x\"\n")),
        ".{0,12}",
        "[-a-z0-9:=\\[\\]{}\"'&*!|> \n\t.#]{0,24}",
    ];
    proptest::collection::vec(fragment, 0..8).prop_map(|parts| parts.concat())
}

/// Asserts that parsing these bytes as TOML and as YAML reveals no secret.
fn assert_survived(files: &Files, content: &[u8]) {
    for name in ["a.toml", "a.yaml"] {
        let path = files.write(name, "");
        std::fs::write(&path, content).expect("written");
        let shown = shown(&sources(&[path], &[], &[]));
        assert!(!shown.contains(SECRET), "{name}: {shown}");
    }
}

#[test]
fn files_of_the_corpus_neither_panic_nor_reveal_a_secret() {
    let files = Files::new();
    for content in corpus::inputs("configuration") {
        assert_survived(&files, &content);
    }
}

#[test]
fn mutations_of_the_shipped_configuration_neither_panic_nor_reveal_a_secret() {
    const CHANGES: usize = 500;
    const TOKENS: &[&[u8]] = &[
        b"\0",
        b"\xff",
        b"[",
        b"[[",
        b"{",
        b"=",
        b": ",
        b"- ",
        b"\"\"\"",
        b"'",
        b"&a ",
        b"*a",
        b"mongodb://u:zq9secretzq9@h",
        b"1e999",
        b"-0x1",
        b"\\u0000",
        b"\n  ",
    ];
    let files = Files::new();
    let mut inputs = corpus::inputs("configuration");
    inputs.push(include_bytes!("../../config/default.toml").to_vec());
    let seed = Mutator::seed();
    let mut mutator = Mutator::new(seed);
    for number in 0..CHANGES {
        let content = mutator.mutated(&inputs, TOKENS);
        let survived = std::panic::catch_unwind(|| assert_survived(&files, &content));
        assert!(
            survived.is_ok(),
            "HOSTILE_SEED={seed}, file {number}: {}",
            content.escape_ascii()
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_files_neither_panic_nor_reveal_a_secret(content in fragments()) {
        let files = Files::new();
        for name in ["a.toml", "a.yaml"] {
            let shown = shown(&sources(&[files.write(name, &content)], &[], &[]));
            prop_assert!(!shown.contains(SECRET), "{}: {}", name, shown);
        }
    }

    #[test]
    fn arbitrary_values_neither_panic_nor_reveal_a_secret(
        index in 0..KEYS.len(),
        before in ".{0,10}",
        scheme in "(mongodb|mongodb\\+srv|MongoDB|postgres|https)",
        after in ".{0,10}",
    ) {
        let value = format!("{before}{scheme}://u:{SECRET}@h{after}");
        let key = &KEYS[index];
        let variable = (key.variable(), value.clone());
        let variables = [(variable.0.as_str(), variable.1.as_str())];
        let shown_variable = shown(&sources(&[], &variables, &[]));
        prop_assert!(!shown_variable.contains(SECRET), "{}", shown_variable);
        let shown_flag = shown(&sources(&[], &[], &[(&key.path(), &value)]));
        prop_assert!(!shown_flag.contains(SECRET), "{}", shown_flag);
    }

    #[test]
    fn arbitrary_texts_are_values_or_refused(index in 0..KEYS.len(), value in "\\PC{0,40}|[0-9.]{0,30}[a-z]{0,6} ?[0-9]{0,30}[a-zµ]{0,3}") {
        let path = KEYS[index].path();
        let _ = shown(&sources(&[], &[], &[(&path, &value)]));
    }

    #[test]
    fn arbitrary_connection_strings_are_parsed_without_a_panic(rest in ".{0,60}|[-a-z0-9.:@/?&=%,\\[\\]+]{0,60}") {
        let _ = ConnectionUri::parse(&format!("mongodb://{rest}"));
        let _ = ConnectionUri::parse(&format!("mongodb+srv://{rest}"));
    }
}
