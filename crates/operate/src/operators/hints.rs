//! Hints in messages: similar names, and commands with the flags of this process.

use std::sync::OnceLock;

use super::arguments::ConnectionArgs;
use leasehold_cli::keys::Selection;
use leasehold_config::{Key, nearest};
use leasehold_core::election::ResourceName;
use leasehold_mongodb::store::mongo::operators::{CollectionEntry, MongoCollection};

/// The connection flags of this process. Hints repeat the flags, because a command without them
/// could use another collection. Empty for `leasehold web`, whose visitors run other commands.
static GIVEN: OnceLock<String> = OnceLock::new();

/// Records this process's connection flags.
pub(super) fn give<S: Selection>(connection: &ConnectionArgs<S>) {
    GIVEN.get_or_init(|| given(connection));
}

/// Names a collection and its replica set.
pub(crate) fn place(collection: &MongoCollection) -> String {
    let info = collection.info().unwrap_or_default();
    let set = info.set.map(|set| format!(" ({set})"));
    let (database, collection) = (info.database, info.collection);
    format!("{database}.{collection}{}", set.unwrap_or_default())
}

/// Returns "; did you mean NAME?" if a document has a similar name, or if exactly one document's
/// name begins with `name`.
pub(crate) fn did_you_mean(name: &ResourceName, listed: &[CollectionEntry]) -> Option<String> {
    let names = || listed.iter().map(|entry| entry.name.as_str());
    let mut longer = names().filter(|longer| longer.starts_with(name.as_str()));
    let only = longer.next().filter(|_| longer.next().is_none());
    let near = nearest(name.as_str(), names()).or(only)?;
    Some(format!("; did you mean {near}?"))
}

/// Returns a command for a hint, with this process's connection flags.
pub(crate) fn hinted(command: &str) -> String {
    let given = GIVEN.get().map_or("", String::as_str);
    format!("leasehold {command}{given}")
}

pub(super) fn describing(name: &ResourceName) -> String {
    hinted(&format!("describe {name}"))
}

/// Returns the flags of a connection, with `…` instead of each secret. A hint without these flags
/// could act on another deployment.
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
