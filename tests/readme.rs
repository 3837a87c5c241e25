//! The program accepts the configuration that the README shows to a newcomer.

use std::process::Command;

const README: &str = include_str!("../README.md");

/// The text of the first code block in this language.
fn block(language: &str) -> &'static str {
    let start = format!("```{language}\n");
    let (_, rest) = README.split_once(&start).expect("a block in this language");
    rest.split_once("```").expect("an end of the block").0
}

#[test]
fn the_arguments_of_the_sidecar_are_a_configuration() {
    let line = block("yaml")
        .lines()
        .find(|line| line.contains("args: [run,"))
        .expect("arguments");
    let (_, list) = line.split_once("[run,").expect("a list");
    let flags = list
        .trim_end_matches(']')
        .split(',')
        .map(|flag| flag.trim().trim_matches('"'));
    let output = Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .arg("config")
        .args(flags.map(str::to_owned).collect::<Vec<_>>())
        .env_clear()
        .output()
        .expect("the program runs");
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for expected in ["\"orders\"", "/secret/uri", "0.0.0.0:9402"] {
        assert!(shown.contains(expected), "{expected} in {shown}");
    }
}

#[test]
fn the_sidecar_fits_in_thirty_lines() {
    assert!(block("yaml").lines().count() <= 30);
}

#[test]
fn every_page_that_it_links_exists() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    for link in README
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
    {
        let file = link.0.split('#').next().unwrap_or_default();
        assert!(
            file.starts_with("http") || root.join(file).exists(),
            "{file}"
        );
    }
}
