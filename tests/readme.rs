//! Goal: a reader of the README can run its commands, use its configuration and follow its links.

use std::process::Command;

const README: &str = include_str!("../README.md");
const SIDECAR: &str = include_str!("../examples/sidecar.yaml");

#[test]
fn the_arguments_of_the_sidecar_are_a_valid_configuration() {
    let line = SIDECAR
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
    assert!(README.contains("(examples/sidecar.yaml)"));
    assert!(SIDECAR.lines().count() <= 31, "30 lines and a comment");
}

#[test]
fn every_linked_page_exists() {
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

fn part(heading: &str) -> &'static str {
    let (_, rest) = README.split_once(heading).expect("a heading");
    rest.split("\n## ").next().expect("a part")
}

#[test]
fn the_first_screen_shows_installation_and_usage() {
    let lines = README.lines().take(32).collect::<Vec<_>>().join("\n");
    for expected in [
        "## Install",
        "$ make build",
        "## Use",
        "leasehold lock",
        "docs/tutorial.md",
    ] {
        assert!(lines.contains(expected), "{expected}");
    }
    let use_lines = part("## Use\n")
        .lines()
        .filter(|line| line.starts_with("$ "));
    assert!(use_lines.count() <= 10);
}

#[test]
fn the_readme_shows_how_to_run_leasehold_and_its_tests() {
    let makefile = include_str!("../Makefile");
    for target in ["run", "test"] {
        assert!(README.contains(&format!("$ make {target} ")), "{target}");
        assert!(makefile.contains(&format!("\n{target}: ")), "{target}");
    }
}

#[test]
fn the_commands_for_use_have_flags_that_exist() {
    let commands = part("## Use\n").lines();
    let commands = commands.filter_map(|line| line.strip_prefix("$ leasehold "));
    let mut seen = 0;
    for command in commands {
        seen += 1;
        let words = command.split(" #").next().unwrap_or_default();
        let output = Command::new("sh")
            .args(["-c", &format!("\"$0\" {words}")])
            .arg(env!("CARGO_BIN_EXE_leasehold"))
            .env_clear()
            .env("LEASEHOLD_MONGODB__URI", "not a connection string")
            .output()
            .expect("a shell runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        let stdout = String::from_utf8_lossy(&output.stdout);
        // The command fails only because of the invalid connection string.
        let code = output.status.code();
        let understood = code == Some(78) || command.starts_with("check") && code == Some(2);
        assert!(understood, "{command}: {code:?} {stdout}{stderr}");
    }
    assert!(seen >= 6, "{seen}");
}

#[test]
fn the_main_pages_are_short() {
    let limits = [
        (README, 1200),
        (include_str!("../docs/verification.md"), 5000),
        (include_str!("../docs/benchmarks.md"), 4000),
    ];
    for (page, limit) in limits {
        let title = page.lines().next().unwrap_or_default();
        let words = page.split_whitespace().count();
        assert!(words <= limit, "{title}: {words} words, at most {limit}");
    }
}
