//! The layers: defaults, files, environment and flags. The crate `config` only parses the files,
//! because it does not record origins and stops at the first error.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use config::{ConfigError as FileError, File, FileFormat, Source, Value, ValueKind};

use super::error::{Origin, Problem};
use super::schema::{DEFAULT_TOML, KEYS, Key, ValueType, find_in, is_section};
use super::secret::{MASK, UriSource, is_misplaced_uri, looks_secret, unreadable};
use super::variables::{self, IgnoredVariable};
use super::{value, yaml};
use leasehold_host::bounded_file::read_bounded;

/// Sources of a configuration. SIGHUP reads the files again.
#[derive(Clone, Default)]
pub struct Sources {
    /// Files, in order of increasing precedence.
    pub files: Vec<PathBuf>,
    /// The environment; unrelated variables are ignored.
    pub environment: Vec<(OsString, OsString)>,
    /// Flags with their values.
    pub flags: Vec<(&'static Key, String)>,
    /// Source of the daemon's connection string. A reload keeps the text that was read from a pipe,
    /// because opening a pipe could block.
    pub started_with: Option<UriSource>,
}

impl Sources {
    /// Creates the sources with the environment of this process.
    pub fn of_process(files: Vec<PathBuf>, flags: Vec<(&'static Key, String)>) -> Self {
        Self {
            files,
            environment: std::env::vars_os().collect(),
            flags,
            started_with: None,
        }
    }

    /// Returns variables that were probably meant as configuration, but have no effect.
    pub fn ignored_variables(&self) -> Vec<IgnoredVariable> {
        variables::ignored(&self.environment)
    }

    /// Reads all layers. Collects all errors, which the validation reports together.
    pub fn load(&self) -> Loaded {
        let mut loaded = Loaded {
            settings: defaults().to_vec(),
            ignored: self.ignored_variables(),
            started_with: self.started_with.clone(),
            ..Loaded::default()
        };
        for path in &self.files {
            loaded.layer += 1;
            loaded.file(path);
        }
        loaded.layer += 1;
        for (name, value) in &self.environment {
            loaded.variable(name, value);
        }
        loaded.layer += 1;
        for (key, value) in &self.flags {
            loaded.set(key, value.clone(), Origin::Flag(key.flag()));
        }
        loaded.pod(&self.environment);
        loaded.identity();
        loaded.profile();
        loaded
    }
}

impl fmt::Debug for Sources {
    /// Omits values, because the environment and the flags may contain a connection string.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags: Vec<_> = self.flags.iter().map(|(key, _)| key.flag()).collect();
        f.debug_struct("Sources")
            .field("files", &self.files.len())
            .field("environment", &self.environment.len())
            .field("flags", &flags)
            .finish()
    }
}

/// Effective value of one key.
#[derive(Clone)]
pub struct Setting {
    /// The key.
    pub key: &'static Key,
    pub(super) value: String,
    /// Origin of the value.
    pub origin: Origin,
    pub(super) valid: bool,
    /// Layer that set the value; a later layer takes precedence.
    pub(super) layer: usize,
}

impl Setting {
    /// Returns true if no layer sets a value, not even an invalid one.
    pub(super) fn is_unset(&self) -> bool {
        self.valid && self.value.is_empty()
    }

    /// Returns the value, masked if it is secret.
    pub fn shown(&self) -> &str {
        match !self.value.is_empty() && (self.key.secret || is_misplaced_uri(&self.value)) {
            true => MASK,
            false => &self.value,
        }
    }
}

/// Two spellings of one value, such as 60s and 1m, are equal.
impl PartialEq for Setting {
    fn eq(&self, other: &Self) -> bool {
        let parsed = |setting: &Self| value::parse(setting.key.kind, &setting.value);
        self.key == other.key && parsed(self) == parsed(other)
    }
}

impl Eq for Setting {}

impl fmt::Debug for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, shown) = (self.key.path(), self.shown());
        write!(f, "{path} = {shown:?} ({})", self.origin)
    }
}

/// All layers, merged, with the errors found so far.
#[derive(Debug, Default)]
pub struct Loaded {
    pub(super) settings: Vec<Setting>,
    pub(super) problems: Vec<Problem>,
    pub(super) ignored: Vec<IgnoredVariable>,
    pub(super) started_with: Option<UriSource>,
    pub(super) layer: usize,
}

/// Variables that Kubernetes manifests usually set. They apply to keys that no layer sets.
const POD: [(&str, &str); 5] = [
    ("identity.name", "POD_NAME"),
    ("kubernetes.pod_name", "POD_NAME"),
    ("kubernetes.pod_namespace", "POD_NAMESPACE"),
    ("kubernetes.pod_uid", "POD_UID"),
    ("kubernetes.pod_account", "POD_ACCOUNT"),
];

/// Maximum size of a configuration file, in case the path names a huge file.
const FILE_BYTES_MAX: usize = 64 * 1024;

/// Limits the nesting that a single line such as "- - - -…" can open, because the loader is
/// recursive: 10,000 levels overflow its stack.
const YAML_LINE_BYTES_MAX: usize = 4096;

const MISPLACED_URI: &str = "this looks like a connection string, which belongs in mongodb.uri, or \
better in the file that mongodb.uri_file names";

pub(super) fn defaults() -> &'static [Setting] {
    static DEFAULTS: OnceLock<Vec<Setting>> = OnceLock::new();
    DEFAULTS.get_or_init(|| Loaded::embedded().settings)
}

impl Loaded {
    fn embedded() -> Self {
        let unset = |key: &'static Key| Setting {
            key,
            value: String::new(),
            origin: Origin::Default,
            valid: true,
            layer: 0,
        };
        let mut loaded = Self {
            settings: KEYS.iter().map(unset).collect(),
            ..Self::default()
        };
        loaded
            .parse(DEFAULT_TOML, FileFormat::Toml, &Origin::Default)
            .expect("the embedded default.toml is valid: a test reads it");
        loaded
    }

    fn file(&mut self, path: &Path) {
        let yaml = path
            .extension()
            .is_some_and(|e| e.eq_ignore_ascii_case("yaml") || e.eq_ignore_ascii_case("yml"));
        let format = if yaml {
            FileFormat::Yaml
        } else {
            FileFormat::Toml
        };
        let read = read_text(path, yaml).map_err(|why| Problem::of_file(path, &why));
        let loaded = read.and_then(|text| {
            let loaded = self.parse(&text, format, &Origin::File(path.to_owned()));
            loaded.map_err(|error| syntax(path, yaml, &error))
        });
        self.problems.extend(loaded.err());
    }

    fn parse(&mut self, text: &str, format: FileFormat, origin: &Origin) -> Result<(), FileError> {
        // Sorted for reproducible reports.
        let sections: BTreeMap<_, _> = File::from_str(text, format)
            .collect()?
            .into_iter()
            .collect();
        for (section, value) in sections {
            self.section(&section, value, origin);
        }
        Ok(())
    }

    fn section(&mut self, section: &str, value: Value, origin: &Origin) {
        let table = match value.kind {
            ValueKind::Table(table) if is_section(section) => table,
            // If all keys of a section are commented out, YAML parses the section as null.
            ValueKind::Nil if is_section(section) => return,
            kind if is_section(section) => {
                let expected = format!("expected a section: [{section}] with its keys below it");
                let problem =
                    Problem::unusable(section, &value::shown_kind(&kind), origin, &expected);
                return self.problems.push(problem);
            }
            _ => {
                return self
                    .problems
                    .push(Problem::unknown_section(section, origin));
            }
        };
        for (name, value) in table.into_iter().collect::<BTreeMap<_, _>>() {
            let inner = format!("{section}.{name}");
            if is_section(&inner) {
                self.section(&inner, value, origin);
                continue;
            }
            let Some(key) = find_in(section, &name) else {
                let problem = Problem::unknown_key(section, &name, origin, Key::path);
                self.problems.push(problem);
                continue;
            };
            match value::text_of(key.kind, &value.kind) {
                Ok(text) => self.set(key, text, origin.clone()),
                Err(expected) => {
                    let value = value::shown_kind(&value.kind);
                    let value = if key.secret { MASK } else { &value };
                    self.unusable(key, value, origin.clone(), &expected);
                }
            }
        }
    }

    fn variable(&mut self, name: &OsStr, value: &OsStr) {
        let Some((section, key_name)) = variables::parts(name) else {
            return;
        };
        let origin = Origin::Variable(name.to_string_lossy().into_owned());
        let known = KEYS.iter().find(|key| name == key.variable().as_str());
        match (known, value.to_str()) {
            (Some(key), Some(value)) => self.set(key, value.to_owned(), origin),
            (Some(key), None) => self.unusable(key, MASK, origin, "expected UTF-8 text"),
            (None, _) => {
                let key_name = key_name.to_lowercase();
                let problem = Problem::unknown_key(&section, &key_name, &origin, Key::variable);
                self.problems.push(problem);
            }
        }
    }

    /// Checks and sets a value. Reports mistakes even in values that a later layer overrides.
    fn set(&mut self, key: &'static Key, mut value: String, origin: Origin) {
        if key.kind == ValueType::Uri {
            // Users often create a secret from a file, which ends with a newline.
            value.truncate(value.trim_end_matches(['\n', '\r']).len());
        }
        let parsed = match !key.secret && is_misplaced_uri(&value) {
            true => Err(MISPLACED_URI.to_owned()),
            false => value::parse(key.kind, &value),
        };
        let valid = parsed.is_ok();
        let problem = parsed.map_err(|expected| Problem::invalid(key, &value, &origin, &expected));
        self.problems.extend(problem.err());
        self.put(key, value, origin, valid);
    }

    /// Reports a value that is not text; the caller has masked it.
    fn unusable(&mut self, key: &'static Key, value: &str, origin: Origin, expected: &str) {
        let problem = Problem::unusable(&key.path(), value, &origin, expected);
        self.problems.push(problem);
        self.put(key, String::new(), origin, false);
    }

    fn put(&mut self, key: &'static Key, value: String, origin: Origin, valid: bool) {
        let layer = self.layer;
        if let Some(setting) = self.settings.iter_mut().find(|s| s.key == key) {
            *setting = Setting {
                key,
                value,
                origin,
                valid,
                layer,
            };
        }
    }

    fn pod(&mut self, environment: &[(OsString, OsString)]) {
        for (path, variable) in POD {
            let mut set = environment.iter().filter(|(_, value)| !value.is_empty());
            let Setting { key, .. } = *self.setting(path);
            if let Some((_, value)) = set.find(|(name, _)| name == variable)
                && self.setting(path).is_unset()
            {
                let origin = Origin::Variable(variable.to_owned());
                self.set(key, value.to_string_lossy().into_owned(), origin);
            }
        }
    }

    fn identity(&mut self) {
        let name = self.setting("identity.name");
        if name.is_unset() {
            let (key, system) = (name.key, rustix::system::uname());
            let host = system.nodename().to_string_lossy();
            let name = format!("{host}-{}", std::process::id());
            self.set(key, name, Origin::Host);
        }
    }
}

fn read_text(path: &Path, yaml: bool) -> Result<String, String> {
    let bytes = read_bounded(path, FILE_BYTES_MAX)
        .map_err(|error| unreadable(&error, "", "--config"))?
        .ok_or("it is longer than 64 KiB")?;
    let text = String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text")?;
    if yaml {
        if text.lines().any(|line| line.len() > YAML_LINE_BYTES_MAX) {
            return Err("it has a line longer than 4096 bytes".to_owned());
        }
        yaml::check(&text)?;
    }
    Ok(text.strip_prefix('\u{feff}').unwrap_or(&text).to_owned())
}

/// Converts a parser error, but omits the part of the file that the error quotes.
fn syntax(path: &Path, yaml: bool, error: &FileError) -> Problem {
    let text = error.to_string();
    let place = number_after(&text, "line ").zip(number_after(&text, "column "));
    let place = place.filter(|_| yaml || text.starts_with("TOML parse error at line "));
    let place = place.map(|(line, column)| format!("line {line}, column {column}: "));
    // The TOML parser quotes the line, marks the column, and then states the problem.
    let words = match text.trim_end().rsplit_once("^\n") {
        _ if yaml && text.contains("duplicated key") => "duplicate key",
        Some((_, words)) if !yaml => words.lines().next().unwrap_or_default().trim(),
        _ => "",
    };
    let format = if yaml { "YAML" } else { "TOML" };
    let message = match words.is_empty() || looks_secret(words) {
        true => format!("this is not {format}, or not a table of sections with keys"),
        false => format!("this is not {format}: {words}"),
    };
    let renamed = match yaml || path.extension().is_some_and(|it| it == "toml") {
        true => "",
        false => "; YAML files must be named .yaml or .yml",
    };
    Problem::of_file(path, &(place.unwrap_or_default() + &message + renamed))
}

fn number_after(text: &str, label: &str) -> Option<usize> {
    let (_, rest) = text.split_once(label)?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_toml_is_valid() {
        assert_eq!(Loaded::embedded().problems.len(), 0);
    }
}
