//! What is wrong with a configuration, all of it at once.

use std::fmt;
use std::path::PathBuf;

use super::schema::{KEYS, Key};
use super::secret::{MASK, UriError, looks_secret, shown, shown_path};

/// Where a value came from.
#[derive(Clone, PartialEq, Eq)]
pub enum Origin {
    /// The embedded `config/default.toml`.
    Default,
    /// A configuration file.
    File(PathBuf),
    /// An environment variable of this name.
    Variable(String),
    /// A flag of this name, without dashes.
    Flag(String),
    /// Made of the host's name and the process id.
    Host,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => f.write_str(&shown_path(path)),
            Self::Variable(name) => write!(f, "environment variable {}", named(name)),
            Self::Flag(name) => write!(f, "flag --{}", named(name)),
            Self::Host => f.write_str("default: host name and process id"),
        }
    }
}

impl fmt::Debug for Origin {
    /// As it is displayed: a connection string may have been given as a path.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One thing that is wrong.
#[non_exhaustive]
pub enum Problem {
    /// A file cannot be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// A file is not TOML, or not YAML.
    Syntax {
        /// The file.
        path: PathBuf,
        /// Line and column, counted from 1, where the parser said them.
        place: Option<(usize, usize)>,
        /// What the parser said, without the text of the file: it may hold a secret.
        message: String,
    },
    /// There is no such section.
    UnknownSection {
        /// What was written.
        section: String,
        /// Where.
        origin: Origin,
        /// What was probably meant.
        suggestion: Option<&'static str>,
    },
    /// There is no such key.
    UnknownKey {
        /// What was written.
        key: String,
        /// Where.
        origin: Origin,
        /// What was probably meant, in the notation of its origin.
        suggestion: Option<String>,
    },
    /// A value is not accepted.
    Invalid {
        /// The full name of the key, or of a section.
        key: String,
        /// The value as it may be shown.
        value: String,
        /// Where.
        origin: Origin,
        /// What would be accepted.
        expected: String,
    },
    /// A relation between values is broken.
    Relation {
        /// The key that is best changed.
        key: String,
        /// Its value.
        value: String,
        /// Where that came from.
        origin: Origin,
        /// What is wrong, with all values and what would be accepted.
        message: String,
    },
    /// A value is required.
    Missing {
        /// The full name of the key.
        key: String,
        /// How it can be given.
        remedy: String,
    },
    /// The connection string cannot be had.
    Uri(UriError, Origin),
}

impl Problem {
    /// A refused value; a secret's is masked, and what looks like one.
    pub(super) fn invalid(key: &Key, value: &str, origin: Origin, expected: String) -> Self {
        Self::Invalid {
            key: key.path(),
            value: if key.secret {
                MASK.to_owned()
            } else {
                shown(value)
            },
            origin,
            expected,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, reason } => {
                write!(f, "cannot read {}: {reason}", shown_path(path))
            }
            Self::Syntax {
                path,
                place: Some((line, column)),
                message,
            } => write!(
                f,
                "{}: line {line}, column {column}: {message}",
                shown_path(path)
            ),
            Self::Syntax {
                path,
                place: None,
                message,
            } => write!(f, "{}: {message}", shown_path(path)),
            Self::UnknownSection {
                section,
                origin,
                suggestion,
            } => {
                write!(
                    f,
                    "[{}] ({origin}): there is no such section",
                    named(section)
                )?;
                suggest(f, *suggestion, "the sections are", &known_sections())
            }
            Self::UnknownKey {
                key,
                origin,
                suggestion,
            } => {
                write!(f, "{} ({origin}): there is no such key", named(key))?;
                let section = key.rsplit_once('.').map_or("", |(section, _)| section);
                let heading = format!("the keys of [{}] are", named(section));
                suggest(f, suggestion.as_deref(), &heading, &known_keys(section))
            }
            Self::Invalid {
                key,
                value,
                origin,
                expected,
            } => write!(f, "{} = {value} ({origin}): {expected}", named(key)),
            Self::Relation {
                key,
                value,
                origin,
                message,
            } => write!(f, "{key} = {} ({origin}): {message}", shown(value)),
            Self::Missing { key, remedy } => write!(f, "{key}: required; {remedy}"),
            Self::Uri(error, origin) => write!(f, "{error} ({origin})"),
        }
    }
}

impl fmt::Debug for Problem {
    /// As it is displayed: a connection string may have been given as a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Enough to mend at a time. A file of another program has thousands.
pub const PROBLEMS_SHOWN_MAX: usize = 20;

/// A configuration that is refused, with everything that is wrong with it.
#[derive(Debug)]
pub struct ConfigError {
    problems: Vec<Problem>,
}

impl ConfigError {
    pub(super) fn new(problems: Vec<Problem>) -> Self {
        Self { problems }
    }

    /// Everything that is wrong.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problems.as_slice() {
            [one] => write!(f, "configuration refused: {one}"),
            several => {
                write!(f, "configuration refused: {} problems", several.len())?;
                let (shown, hidden) = several.split_at(several.len().min(PROBLEMS_SHOWN_MAX));
                shown.iter().try_for_each(|one| write!(f, "\n  {one}"))?;
                match hidden.len() {
                    0 => Ok(()),
                    more => write!(f, "\n  and {more} more"),
                }
            }
        }
    }
}

impl std::error::Error for ConfigError {}

fn suggest(
    f: &mut fmt::Formatter<'_>,
    suggestion: Option<&str>,
    heading: &str,
    known: &[&str],
) -> fmt::Result {
    match suggestion {
        Some(name) => write!(f, "; did you mean {name}?"),
        None => write!(f, "; {heading} {}", known.join(", ")),
    }
}

fn known_sections() -> Vec<&'static str> {
    let mut sections: Vec<_> = KEYS.iter().map(|key| key.section).collect();
    sections.dedup();
    sections
}

fn known_keys(section: &str) -> Vec<&'static str> {
    KEYS.iter()
        .filter(|key| key.section == section)
        .map(|key| key.name)
        .collect()
}

/// The name of a key or section as somebody wrote it.
fn named(name: &str) -> String {
    if looks_secret(name) {
        MASK.to_owned()
    } else {
        name.escape_debug().to_string()
    }
}
