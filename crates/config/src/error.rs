//! Problems of a configuration, reported together.

use std::fmt;
use std::path::PathBuf;

use super::choice::Profile;
use super::schema::{KEYS, Key};
use super::secret::{MASK, UriError, looks_secret, shown, shown_path};
use leasehold_host::{CommandError, exit};

/// Origin of a value.
#[derive(Clone, PartialEq, Eq)]
pub enum Origin {
    /// The embedded `config/default.toml`.
    Default,
    /// A configuration file.
    File(PathBuf),
    /// An environment variable of this name.
    Variable(String),
    /// A flag with this name, without dashes.
    Flag(String),
    /// Derived from the host name and the process id.
    Host,
    /// The value of `lease.profile`.
    Profile(Profile),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => f.write_str(&shown_path(path)),
            Self::Variable(name) => write!(f, "environment variable {}", named(name)),
            Self::Flag(name) => write!(f, "flag --{}", named(name)),
            Self::Host => f.write_str("default: host name and process id"),
            Self::Profile(profile) => write!(f, "lease.profile {profile}"),
        }
    }
}

impl fmt::Debug for Origin {
    /// Same as `Display`, because a connection string may have been passed as a path.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A single problem.
#[non_exhaustive]
pub enum Problem {
    /// A file cannot be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A file is not TOML, or not YAML.
    Syntax {
        /// The file.
        path: PathBuf,
        /// Line and column, counted from 1, if the parser reported them.
        place: Option<(usize, usize)>,
        /// The parser's message, without the text of the file, which may contain a secret.
        message: String,
    },
    /// The section is unknown.
    UnknownSection {
        /// The name as written.
        section: String,
        /// Origin of the name.
        origin: Origin,
        /// The section that was probably meant.
        suggestion: Option<&'static str>,
    },
    /// The key is unknown.
    UnknownKey {
        /// The name as written.
        key: String,
        /// Origin of the name.
        origin: Origin,
        /// The key that was probably meant, in the notation of its origin.
        suggestion: Option<String>,
    },
    /// A value is rejected.
    Invalid {
        /// Full name of the key, or name of a section.
        key: String,
        /// The value in a form that may be printed.
        value: String,
        /// Origin of the value.
        origin: Origin,
        /// Description of the accepted values.
        expected: String,
    },
    /// A relation between values is violated.
    Relation {
        /// The key that the user most likely needs to change.
        key: String,
        /// Its value.
        value: String,
        /// Origin of that value.
        origin: Origin,
        /// Description of the violation, with all values and the accepted ones.
        message: String,
    },
    /// A value is required.
    Missing {
        /// The full name of the key.
        key: String,
        /// Ways to set the value.
        remedy: String,
    },
    /// The connection string is unavailable.
    Uri(UriError, Origin),
}

impl Problem {
    /// Creates a problem for a rejected value. A secret, or a value that looks like one, is masked.
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
                place,
                message,
            } => {
                write!(f, "{}: ", shown_path(path))?;
                if let Some((line, column)) = place {
                    write!(f, "line {line}, column {column}: ")?;
                }
                f.write_str(message)
            }
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
    /// Same as `Display`, because a connection string may have been passed as a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Maximum number of problems shown. A file of another program can have thousands.
pub const PROBLEMS_SHOWN_MAX: usize = 20;

/// A rejected configuration with all of its problems.
#[derive(Debug)]
pub struct ConfigError {
    problems: Vec<Problem>,
}

impl ConfigError {
    pub(super) fn new(problems: Vec<Problem>) -> Self {
        Self { problems }
    }

    /// Returns all problems.
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

impl From<ConfigError> for CommandError {
    fn from(error: ConfigError) -> Self {
        Self::new(exit::CONFIGURATION, error.to_string())
    }
}

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

/// Returns the name of a key or section in a form that may be printed.
fn named(name: &str) -> String {
    if looks_secret(name) {
        MASK.to_owned()
    } else {
        name.escape_debug().to_string()
    }
}
