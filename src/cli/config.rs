//! `leasehold config`: prints the values in effect and their origins.

use std::fmt::Write;

use clap::{Args, ValueEnum};
use serde_json::json;

use super::{CommandError, answer};
use crate::config::{Key, MASK, Origin, Setting, ValueType, find, is_section, suggest_key};
use crate::election::ResourceName;
use crate::publish::directory::intended_directory;
use leasehold_cli::keys::{AllKeys, Configuration, with_layers};
use leasehold_cli::say;

const DIRECTORY: &str = "status.directory";

const HELP: &str = "\
Secrets are masked. A value without a comment is the built-in default.

Examples:
  leasehold config
  leasehold config lease.renew_deadline
  leasehold config lease
  leasehold config --changed
  leasehold config --config /etc/leasehold.toml --output json

Exit codes: 0 done, 64 usage, 78 invalid configuration.";

/// Arguments of `leasehold config`.
#[derive(Debug, Args)]
#[command(after_help = with_layers(HELP))]
pub struct ConfigArgs {
    #[command(flatten)]
    configuration: Configuration<AllKeys>,
    /// Print only this key, such as lease.name, or this section
    #[arg(value_parser = selected)]
    key: Option<Selected>,
    /// Print only the keys whose value is not the default
    #[arg(long)]
    changed: bool,
    /// Output format: toml or json
    #[arg(
        short,
        long,
        value_name = "FORM",
        default_value = "toml",
        hide_possible_values = true
    )]
    output: ConfigFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "the name of a format needs no explanation")]
enum ConfigFormat {
    Toml,
    Json,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Selected {
    Key(&'static Key),
    Section(String),
}

impl Selected {
    fn contains(&self, key: &Key) -> bool {
        match self {
            Self::Key(selected) => *selected == key,
            Self::Section(section) => {
                let rest = key.section.strip_prefix(section.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            }
        }
    }
}

fn selected(text: &str) -> Result<Selected, String> {
    if is_section(text) {
        return Ok(Selected::Section(text.to_owned()));
    }
    find(text).map(Selected::Key).ok_or_else(|| {
        let (section, name) = text.rsplit_once('.').unwrap_or(("", text));
        match suggest_key(section, name) {
            Some(near) => format!("there is no such key; did you mean {}?", near.path()),
            None => {
                "there is no such key; leasehold config lists them; to name the lease: --lease NAME"
                    .to_owned()
            }
        }
    })
}

/// Prints the effective configuration, with secrets masked.
pub fn run(args: ConfigArgs) -> Result<(), CommandError> {
    let sources = args.configuration.sources;
    let mut settings = sources.load().settings()?;
    for ignored in sources.ignored_variables() {
        say(&ignored.to_string());
    }
    let derived = derived_directory(&settings);
    let selected = args.key.as_ref();
    settings.retain(|setting| selected.is_none_or(|selected| selected.contains(setting.key)));
    let is_default = |origin: &Origin| matches!(origin, Origin::Default | Origin::Host);
    settings.retain(|setting| !args.changed || !is_default(&setting.origin));
    let text = match (args.output, selected, &settings[..]) {
        (ConfigFormat::Json, ..) => as_json(&settings),
        (ConfigFormat::Toml, Some(Selected::Key(key)), [only]) => {
            let derived = derived.filter(|_| key.path() == DIRECTORY);
            let value = derived.as_deref().unwrap_or(only.shown());
            format!("{}\n", on_one_line(value))
        }
        (ConfigFormat::Toml, ..) => as_toml(&settings, derived.as_deref()),
    };
    answer(text.as_bytes())
}

/// Returns the status directory that a daemon with these settings uses, if the settings name no
/// directory.
fn derived_directory(settings: &[Setting]) -> Option<String> {
    let value = |path| {
        let mut named = settings.iter().filter(|setting| setting.key.path() == path);
        named.next().map(Setting::shown)
    };
    let unset = value(DIRECTORY)?.is_empty();
    let lease = value("lease.name")?;
    let named = ResourceName::new(lease).or_else(|_| ResourceName::new("lease"));
    let directory = intended_directory(&named.ok()?, None);
    let directory = match lease {
        "" => directory.with_file_name("<lease>"),
        _ => directory,
    };
    unset.then(|| directory.display().to_string())
}

/// Renders a valid configuration file. Masked secrets, and names that contain the id of this
/// process, are commented out.
fn as_toml(settings: &[Setting], derived: Option<&str>) -> String {
    let mut text = String::new();
    let mut section = "";
    for setting in settings {
        if setting.key.section != section {
            if !section.is_empty() {
                text.push('\n');
            }
            section = setting.key.section;
            let _ = writeln!(text, "[{section}]");
        }
        let (name, shown) = (setting.key.name, setting.shown());
        let value = match setting.key.kind {
            ValueType::Flag | ValueType::Count(..) => shown.to_owned(),
            ValueType::Command if shown.starts_with('[') => shown.to_owned(),
            _ => quoted(shown),
        };
        let hidden = shown == MASK || setting.origin == Origin::Host;
        let comment = if hidden { "# " } else { "" };
        let origin = match derived.filter(|_| setting.key.path() == DIRECTORY) {
            Some(directory) => format!("default: {directory}"),
            None => setting.origin.to_string(),
        };
        let origin = match origin.as_str() {
            "default" => String::new(),
            origin => format!(" # {}", on_one_line(origin)),
        };
        let _ = writeln!(text, "{comment}{name} = {value}{origin}");
    }
    text
}

fn as_json(settings: &[Setting]) -> String {
    let mut object = json!({});
    for setting in settings {
        let shown = setting.shown();
        let value = match setting.key.kind {
            ValueType::Count(..) => json!(shown.parse::<u32>().ok()),
            ValueType::Command if shown.starts_with('[') => {
                serde_json::from_str(shown).unwrap_or_else(|_| shown.into())
            }
            ValueType::Flag => json!(shown == "true"),
            _ => json!(shown),
        };
        let source = setting.origin.to_string();
        object[setting.key.path()] = json!({ "value": value, "source": source });
    }
    format!("{object:#}\n")
}

/// Renders a basic string of TOML, which is a JSON string with all control characters escaped.
fn quoted(text: &str) -> String {
    let escaped = |c: char| match c.is_control() {
        true => format!("\\u{:04X}", u32::from(c)),
        false => c.to_string(),
    };
    let quoted = serde_json::Value::from(text).to_string();
    quoted.chars().map(escaped).collect()
}

/// Replaces control characters, which TOML does not allow in a comment.
fn on_one_line(text: &str) -> String {
    text.replace(char::is_control, "?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_selects_its_keys() {
        let selected = selected("workload").expect("a section");
        let contains = |path| selected.contains(find(path).expect("a key"));
        assert!(contains("workload.stop_grace") && contains("workload.health.url"));
        assert!(!contains("lease.name"));
    }

    #[test]
    fn strings_are_quoted_for_toml() {
        assert_eq!(quoted("a\"b\\c\n\u{7f}ü"), r#""a\"b\\c\n\u007Fü""#);
        assert_eq!(on_one_line("a\nb"), "a?b");
    }
}
