use std::fmt;
use std::path::{Path, PathBuf};

use super::schema::{KEYS, Key, suggest, suggest_key};
use super::secret::{MASK, looks_secret, shown, shown_path};
use leasehold_host::{CommandError, exit};

/// Origin of a value.
#[derive(Clone, PartialEq, Eq)]
pub enum Origin {
    /// The embedded `config/default.toml`.
    Default,
    /// A configuration file.
    File(PathBuf),
    /// An environment variable.
    Variable(String),
    /// A flag, without dashes.
    Flag(String),
    /// Derived from the host name and the process id.
    Host,
    /// The value of `lease.profile`.
    Profile(String),
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
    /// Masks secrets as `Display` does, because a connection string may have been passed as a path.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One problem in a configuration. Its text contains no part of a secret.
#[derive(Debug)]
pub struct Problem {
    pub(super) text: String,
    /// True if a file is unreadable; the keys that seem missing may be in this file.
    pub(super) hides_keys: bool,
}

impl Problem {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            hides_keys: false,
        }
    }

    pub(super) fn of_file(path: &Path, why: &str) -> Self {
        Self {
            text: format!("cannot read {}: {why}", shown_path(path)),
            hides_keys: true,
        }
    }

    pub(super) fn unknown_section(section: &str, origin: &Origin) -> Self {
        let mut known: Vec<_> = KEYS.iter().map(|key| key.section).collect();
        known.dedup();
        let instead = match suggest(section, known.iter().copied()) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("the sections are {}", known.join(", ")),
        };
        let section = format!("[{}] ({origin})", named(section));
        Self::new(format!("{section}: there is no such section; {instead}"))
    }

    /// Suggests the most similar key, in the notation of `origin`: flag, variable or file key.
    pub(super) fn unknown_key(
        section: &str,
        name: &str,
        origin: &Origin,
        notation: fn(&Key) -> String,
    ) -> Self {
        let instead = match suggest_key(section, name) {
            Some(near) => format!("did you mean {}?", notation(near)),
            None => {
                let known = KEYS.iter().filter(|key| key.section == section);
                let known: Vec<_> = known.map(|key| key.name).collect();
                format!("the keys of [{section}] are {}", known.join(", "))
            }
        };
        let key = named(&format!("{section}.{name}"));
        Self::new(format!("{key} ({origin}): there is no such key; {instead}"))
    }

    /// Masks the value of a secret key, and any value that looks like a secret.
    pub(super) fn invalid(key: &Key, value: &str, origin: &Origin, expected: &str) -> Self {
        let value = shown(value);
        let value = if key.secret { MASK } else { &value };
        Self::unusable(&key.path(), value, origin, expected)
    }

    /// `path` is a key or section; the caller has masked `value`.
    pub(super) fn unusable(path: &str, value: &str, origin: &Origin, expected: &str) -> Self {
        Self::new(format!("{path} = {value} ({origin}): {expected}"))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Maximum number of problems shown, because a file of another program can cause thousands.
pub const PROBLEMS_SHOWN_MAX: usize = 20;

/// A rejected configuration with all its problems.
#[derive(Debug)]
pub struct ConfigError {
    pub(super) problems: Vec<Problem>,
}

impl ConfigError {
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
                let mut shown = several.iter().take(PROBLEMS_SHOWN_MAX);
                shown.try_for_each(|one| write!(f, "\n  {one}"))?;
                match several.len().saturating_sub(PROBLEMS_SHOWN_MAX) {
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

fn named(name: &str) -> String {
    match looks_secret(name) {
        true => MASK.to_owned(),
        false => name.escape_debug().to_string(),
    }
}
