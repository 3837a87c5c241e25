//! Hints in messages: similar names, and commands with the flags of this process.

use std::sync::OnceLock;

use super::OperatorError;
use super::arguments::ConnectionArgs;
use leasehold_cli::keys::Selection;
use leasehold_config::{Key, near};
use leasehold_core::election::ResourceName;
use leasehold_mongodb::store::mongo::operators::{MongoCollection, Scope};

/// Maximum number of suggested names.
const NEAR_MAX: usize = 3;

/// The connection flags of this process. Hints repeat the flags, because a command without them
/// could use another collection. Empty for `leasehold web`, whose visitors run other commands.
static GIVEN: OnceLock<String> = OnceLock::new();

/// Records this process's connection flags.
pub(super) fn give<S: Selection>(connection: &ConnectionArgs<S>) {
    GIVEN.get_or_init(|| given(connection));
}

/// Returns the names of a collection and its deployment.
pub(crate) fn place(collection: &MongoCollection) -> String {
    let info = collection.info().unwrap_or_default();
    super::render::place(&info)
}

/// Returns the error for an unknown name, with similar names and the commands that list the names.
/// `kind` is "lease", "lock" or "lease or lock".
pub(crate) async fn missing(
    collection: &MongoCollection,
    kind: &'static str,
    name: &ResourceName,
) -> OperatorError {
    let scope = match kind {
        "lease" => Scope::Leases,
        "lock" => Scope::Locks,
        _ => Scope::All,
    };
    let listed = collection.list(&scope).await.unwrap_or_default();
    let names: Vec<_> = listed.iter().map(|entry| entry.name.as_str()).collect();
    let near = did_you_mean(name.as_str(), &names);
    let near = near.map_or_else(|| "; to".to_owned(), |near| format!("{near} To"));
    let (names, list) = match scope {
        Scope::Leases => ("leases", hinted("leases")),
        Scope::Locks => ("locks", hinted("locks")),
        _ => (
            "names",
            format!("{}, {}", hinted("leases"), hinted("locks")),
        ),
    };
    let hint = format!(" in {}{near} list the {names}: {list}", place(collection));
    let name = name.clone();
    OperatorError::Missing { kind, name, hint }
}

/// Returns "; did you mean A or B?" for the names that resemble `name`, or begin with `name`.
pub(crate) fn did_you_mean(name: &str, known: &[&str]) -> Option<String> {
    let names = || known.iter().copied();
    let mut similar = near(name, names());
    if similar.is_empty() {
        let start = name.to_lowercase();
        let longer = names().filter(|longer| longer.to_lowercase().starts_with(&start));
        // If many names begin with `name`, none of them is suggested.
        let longer: Vec<_> = longer.take(NEAR_MAX + 1).collect();
        similar.extend(longer.iter().filter(|_| longer.len() <= NEAR_MAX));
    }
    similar.truncate(NEAR_MAX);
    let (last, first) = similar.split_last()?;
    let or = if first.is_empty() { "" } else { " or " };
    Some(format!("; did you mean {}{or}{last}?", first.join(", ")))
}

/// Returns a command for a hint, with this process's connection flags.
pub(crate) fn hinted(command: &str) -> String {
    let given = GIVEN.get().map_or("", String::as_str);
    format!("leasehold {command}{given}")
}

pub(super) fn describing(name: &ResourceName) -> String {
    hinted(&format!("describe {name}"))
}

/// Returns the flags of a connection, with `…` instead of each secret. A suggested command without
/// these flags could act on another deployment.
fn given<S: Selection>(connection: &ConnectionArgs<S>) -> String {
    let sources = &connection.configuration.sources;
    let files = sources.files.iter();
    let files = files.map(|file| format!(" --config {}", quoted(&file.display().to_string())));
    let connection = |(key, _): &&(&Key, String)| key.section == "mongodb";
    let flags = sources.flags.iter().filter(connection).map(|(key, value)| {
        let value = if key.secret {
            "…".to_owned()
        } else {
            quoted(value)
        };
        format!(" --{} {value}", key.flag())
    });
    files.chain(flags).collect()
}

/// Quotes text for a shell.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_-.,:@/%+=".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}
