//! Goal: `docs/configuration.md`, `config/default.toml` and `leasehold run --help` agree on every
//! key and default, `docs/operations.md` lists the options that commands share, and
//! `docs/mongodb.md` lists every supported option of a connection string.
//! Method: compares each page with the table of keys or options, or with the command line.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use leasehold::config::{DEFAULT_TOML, KEYS, Key, Reload, ValueType};
use leasehold::uri::{OPTIONS, Treatment, UriOption};

const OPERATIONS: &str = include_str!("../docs/operations.md");
const DOCUMENT: &str = include_str!("../docs/configuration.md");

/// Returns the cells of each table row that begins with a key.
fn rows() -> Vec<Vec<&'static str>> {
    let sections: BTreeSet<_> = KEYS.iter().map(|key| key.section).collect();
    DOCUMENT
        .lines()
        .skip_while(|line| *line != "## Keys")
        .filter_map(|line| {
            let cells: Vec<_> = line.strip_prefix("| `")?.split(" | ").collect();
            let section = cells[0].split('.').next()?;
            assert!(sections.contains(section), "row of an unknown key: {line}");
            Some(cells)
        })
        .collect()
}

#[test]
fn the_document_has_one_row_for_each_key_in_the_same_order() {
    let documented: Vec<_> = rows()
        .iter()
        .map(|cells| cells[0].trim_end_matches('`').to_owned())
        .collect();
    let known: Vec<_> = KEYS.iter().map(Key::path).collect();
    assert_eq!(documented, known);
}

#[test]
fn the_document_shows_each_default_and_the_effect_of_a_reload() {
    for (cells, key) in rows().iter().zip(KEYS) {
        let path = key.path();
        let [_, value, default, range, reload, effect] = cells.as_slice() else {
            panic!("{path}: a row has six cells: {cells:?}");
        };
        match key.default() {
            "" => assert!(default.starts_with("not set"), "{path}: {default}"),
            expected => assert_eq!(*default, format!("`{expected}`"), "{path}"),
        }
        let expected = match key.reload {
            Reload::Now => "now",
            Reload::NextClaim => "next claim",
            Reload::Reconnect => "reconnect",
            Reload::Restart => "restart",
        };
        assert_eq!(*reload, expected, "{path}");
        assert_eq!(value.contains("secret"), key.secret, "{path}: {value}");
        if let ValueType::Duration(min, max) = key.kind {
            let compact = |d| humantime::format_duration(d).to_string();
            let expected = format!("{}–{}", compact(min), compact(max));
            assert!(range.starts_with(&expected), "{path}: {range}");
        }
        if let ValueType::OneOf(words) = key.kind {
            for word in words {
                assert!(range.contains(&format!("`{word}`")), "{path}: {range}");
            }
        }
        assert!(effect.len() > 10, "{path}: {effect}");
    }
}

#[test]
fn default_toml_has_a_comment_on_the_effect_of_a_reload_for_each_key() {
    let lines: Vec<_> = DEFAULT_TOML.lines().collect();
    let mut section = "";
    let mut documented = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
        } else if let Some((name, value)) =
            line.split_once(" = ").filter(|_| !line.starts_with('#'))
        {
            let comment: Vec<_> = lines[..index]
                .iter()
                .rev()
                .take_while(|line| line.starts_with('#'))
                .map(|line| line.trim_start_matches('#').trim())
                .collect();
            let comment = comment.into_iter().rev().collect::<Vec<_>>().join(" ");
            documented.push((
                format!("{section}.{name}"),
                value.trim_matches('"'),
                comment,
            ));
        }
    }
    assert_eq!(documented.len(), KEYS.len());
    for ((path, value, comment), key) in documented.iter().zip(KEYS) {
        assert_eq!(*path, key.path());
        assert_eq!(*value, key.default(), "{path}");
        let expected = match key.reload {
            Reload::Now => "Takes effect immediately",
            Reload::NextClaim => "Takes effect at the next claim",
            Reload::Reconnect => "Takes effect when leasehold reconnects",
            Reload::Restart => "Takes effect after a restart",
        };
        assert!(comment.contains(expected), "{path}: {comment}");
    }
}

#[test]
fn help_has_a_flag_for_each_key_with_its_default() {
    let output = Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .args(["run", "--help"])
        .output()
        .expect("the program runs");
    assert!(output.status.success());
    let help = String::from_utf8(output.stdout).expect("the output is UTF-8");
    // Line breaks depend on the width of the terminal.
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for key in KEYS {
        let flag = key.flag();
        let start = format!("--{flag} <");
        let valued = format!("--{flag}[=<");
        let at = help
            .find(&start)
            .or_else(|| help.find(&valued))
            .unwrap_or_else(|| panic!("no flag for {}", key.path()));
        let (_, described) = help[at..].split_once('>').expect("every flag has a value");
        let described = described.trim_start_matches(']').trim_start();
        let expected = match key.default() {
            "" => key.help.to_owned(),
            default => format!("{} [default: {default}]", key.help),
        };
        assert!(described.starts_with(&expected), "{expected}: {described}");
    }
}

/// Adds the options of each subcommand, except for keys that only the configuration defines.
fn add_options(of: &clap::Command, path: &str, found: &mut BTreeMap<String, BTreeSet<String>>) {
    for command in of.get_subcommands() {
        let path = format!("{path} {}", command.get_name());
        let path = path.trim_start();
        let is_key = |id: &str| KEYS.iter().any(|key| key.path() == id);
        let options = command.get_arguments().filter_map(|argument| {
            let id = argument.get_id().as_str();
            match argument.get_long() {
                Some(long) if is_key(id) && long != "lease" => None,
                Some(long) => Some(format!("`--{long}`")),
                None => (id == "name").then(|| "`NAME`".to_owned()),
            }
        });
        found.insert(format!("`{path}`"), options.collect());
        add_options(command, path, found);
    }
}

#[test]
fn the_operations_page_lists_the_options_that_commands_share() {
    let mut commands = BTreeMap::new();
    add_options(&leasehold::cli::command(), "", &mut commands);
    let mut users: BTreeMap<String, usize> = BTreeMap::new();
    for option in commands.values().flatten() {
        *users.entry(option.clone()).or_default() += 1;
    }
    for options in commands.values_mut() {
        options.retain(|option| users[option] > 1);
    }
    commands.retain(|_, options| !options.is_empty());
    let shared: BTreeSet<_> = commands.values().flatten().cloned().collect();
    let table = OPERATIONS.split("\n## The commands\n").nth(1);
    let lines = table.expect("the section").lines();
    let rows = lines.skip_while(|line| !line.starts_with('|'));
    let mut rows = rows.take_while(|line| line.starts_with('|')).map(|row| {
        let cells = row.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().to_owned()).collect::<Vec<_>>()
    });
    let header = rows.next().expect("a header");
    let documented: BTreeMap<_, BTreeSet<_>> = rows
        .skip(1)
        .map(|cells| {
            let given = header.iter().zip(&cells).skip(1);
            let given = given.filter(|(_, cell)| *cell == "yes");
            let given = given.map(|(option, _)| option.clone());
            (cells[0].clone(), given.collect())
        })
        .collect();
    let header: BTreeSet<_> = header.into_iter().skip(1).collect();
    assert_eq!(header, shared);
    assert_eq!(documented, commands);
}

fn names(option: &UriOption) -> String {
    let aliases: Vec<_> = option.aliases.iter().map(|a| format!("`{a}`")).collect();
    match aliases.is_empty() {
        true => format!("`{}`", option.name),
        false => format!("`{}` ({})", option.name, aliases.join(", ")),
    }
}

#[test]
fn the_document_lists_each_option_of_connection_strings_with_its_treatment() {
    let mut treatments: Vec<_> = OPTIONS.iter().map(|option| option.treatment).collect();
    treatments.sort();
    treatments.dedup();
    let expected: Vec<_> = treatments
        .into_iter()
        .map(|treatment| {
            let (word, text) = match treatment {
                Treatment::Applied => ("applied", ""),
                Treatment::AppliedWithRisk(risk) => ("applied, with a warning", risk),
                Treatment::Overridden(by) => ("overridden", by),
                Treatment::Ignored(why) => ("ignored", why),
                Treatment::Refused(why) => ("refused", why),
                _ => panic!("{treatment:?} is not documented"),
            };
            let options = OPTIONS.iter().filter(|o| o.treatment == treatment);
            let options: Vec<_> = options.map(names).collect();
            format!("| {} | {word} | {text} |", options.join(", "))
        })
        .collect();
    let (_, section) = include_str!("../docs/mongodb.md")
        .split_once("### Options of the connection string")
        .expect("the section");
    let documented: Vec<_> = section
        .lines()
        .skip_while(|line| !line.starts_with("| ---"))
        .skip(1)
        .take_while(|line| line.starts_with('|'))
        .collect();
    assert_eq!(documented, expected, "\n{}", expected.join("\n"));
}
