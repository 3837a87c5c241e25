//! Converts settings to the typed configuration, and checks required keys and the relations between
//! values.

use std::cmp::Ordering;
use std::path::PathBuf;
use std::time::Duration;

use super::choice::{KubernetesEnabled, LogFormat, LogLevel, Prefer, Profile, ReadyWhen, Watch};
use super::differences::LoadedValues;
use super::error::{ConfigError, Origin, Problem};
use super::load::{Loaded, Setting};
use super::rendered_for::{Placement, RenderedFor};
use super::schema::ValueType;
use super::secret::{Secret, UriSource};
use super::{
    Config, HttpConfig, KubernetesConfig, LeaseConfig, LockConfig, LogConfig, MongoConfig, value,
};
use leasehold_core::election::{Identity, ResourceName, TimingSettings, Timings};

impl Loaded {
    /// Returns the configuration of a daemon. A lease and a connection string are required, and the
    /// file with the connection string must be readable.
    ///
    /// # Errors
    /// [`ConfigError`] with all problems.
    pub fn config(self) -> Result<Config, ConfigError> {
        let mut checked = Checked(self);
        let timings = checked.timings();
        checked.health();
        checked.unused_flags();
        let name = checked.lease_name();
        let uri = checked.required_uri();
        let config = checked.assemble(timings, name, uri);
        checked.finish(config)
    }

    /// Returns true if no layer specifies the store.
    pub fn names_no_store(&self) -> bool {
        let unset = |path: &str| {
            let mut settings = self.settings.iter();
            settings.any(|s| s.key.path() == path && s.is_unset())
        };
        unset("mongodb.uri") && unset("mongodb.uri_file")
    }

    /// Returns the configuration of a command that uses the store but is not a daemon. A lease name
    /// is not required.
    ///
    /// # Errors
    /// [`ConfigError`] with all problems.
    pub fn lock_config(self) -> Result<LockConfig, ConfigError> {
        let mut checked = Checked(self);
        let timings = checked.timings();
        checked.health();
        checked.unused_flags();
        let uri = checked.required_uri();
        let config = checked.assemble_lock(timings, uri);
        checked.finish(config)
    }

    /// Returns the effective values, in the order of the documentation. No key is required, and
    /// only the configuration's own files are read.
    ///
    /// # Errors
    /// [`ConfigError`] with all problems.
    pub fn settings(self) -> Result<Vec<Setting>, ConfigError> {
        let mut checked = Checked(self);
        checked.timings();
        checked.health();
        checked.unused_flags();
        checked.uri_source();
        let settings = checked.0.settings.clone();
        checked.finish(Some(settings))
    }
}

/// Keys of the durations in [`Timings`], with their sections.
const TIMINGS: [&str; 6] = [
    "lease.lease_duration",
    "lease.renew_deadline",
    "lease.renew_interval",
    "lease.retry_interval",
    "mongodb.operation_timeout",
    "workload.loss_grace",
];

pub(super) struct Checked(pub(super) Loaded);

impl Checked {
    pub(super) fn setting(&self, path: &str) -> &Setting {
        self.0
            .settings
            .iter()
            .find(|s| path.rsplit_once('.') == Some((s.key.section, s.key.name)))
            .expect("every key that is read is in the table: a test loads them all")
    }

    /// Returns the value if it is set and accepted.
    pub(super) fn text(&self, path: &str) -> Option<&str> {
        let setting = self.setting(path);
        (setting.valid && !setting.value.is_empty()).then_some(setting.value.as_str())
    }

    fn is_unset(&self, path: &str) -> bool {
        self.setting(path).is_unset()
    }

    /// Reports a value that conflicts with other values.
    pub(super) fn reject(&mut self, path: &str, expected: String) {
        let Setting {
            key, value, origin, ..
        } = self.setting(path);
        let problem = Problem::invalid(key, value, origin.clone(), expected);
        self.0.problems.push(problem);
    }

    /// Returns the result, or all problems if there is one.
    fn finish<T>(self, result: Option<T>) -> Result<T, ConfigError> {
        match result {
            Some(result) if self.0.problems.is_empty() => Ok(result),
            Some(_) | None => Err(ConfigError::new(self.0.problems)),
        }
    }

    /// Reports a missing value that is required. Skipped if a file cannot be read, because the
    /// value may be in that file.
    fn missing(&mut self, key: &str, remedy: &str) {
        let unread = |problem: &Problem| {
            matches!(problem, Problem::Unreadable { .. } | Problem::Syntax { .. })
        };
        if !self.0.problems.iter().any(unread) {
            let misspelt = self.0.misspelt.iter();
            let hints = misspelt.filter(|(_, meant)| key.contains(&meant.path()));
            let hints: String = hints
                .map(|(name, meant)| {
                    format!(
                        "; {name} is set and ignored: write {}, with two underscores",
                        meant.variable()
                    )
                })
                .collect();
            self.0.problems.push(Problem::Missing {
                key: key.to_owned(),
                remedy: format!("{remedy}{hints}"),
            });
        }
    }

    pub(super) fn duration(&self, path: &str) -> Option<Duration> {
        match self.setting(path).key.kind {
            ValueType::Duration { min, max } => value::duration(self.text(path)?, min, max).ok(),
            _ => None,
        }
    }

    /// Checks the relations of the durations, unless one of them was rejected.
    fn timings(&mut self) -> Option<Timings> {
        let [
            lease_duration,
            renew_deadline,
            renew_interval,
            retry_interval,
            operation_timeout,
            loss_grace,
        ] = TIMINGS.map(|path| self.duration(path));
        let settings = TimingSettings {
            lease_duration: lease_duration?,
            renew_deadline: renew_deadline?,
            renew_interval: renew_interval?,
            retry_interval: retry_interval?,
            operation_timeout: operation_timeout?,
            loss_grace: loss_grace?,
        };
        let errors = match Timings::new(settings) {
            Ok(timings) => return Some(timings),
            Err(errors) => errors,
        };
        for error in errors {
            let key = full_names(error.key);
            let (value, origin) = match TIMINGS.contains(&key.as_str()) {
                true => {
                    let setting = self.setting(&key);
                    (setting.value.clone(), setting.origin.clone())
                }
                false => (String::new(), Origin::Default),
            };
            self.0.problems.push(Problem::Relation {
                key,
                value,
                origin,
                message: full_names(&error.message),
            });
        }
        None
    }

    fn lease_name(&mut self) -> Option<ResourceName> {
        if self.is_unset("lease.name") {
            self.missing(
                "lease.name",
                "set --lease NAME, LEASEHOLD_LEASE__NAME, or name in the section [lease] of a file",
            );
        }
        ResourceName::new(self.text("lease.name")?).ok()
    }

    /// Resolves two keys that exclude each other: the one of the later layer takes precedence. Both
    /// in the same layer are an error, and the function returns false.
    pub(super) fn one_of(&mut self, first: &str, second: &str) -> bool {
        let (one, other) = (self.setting(first), self.setting(second));
        if one.value.is_empty() || other.value.is_empty() {
            return true;
        }
        let (weaker, origin) = match one.layer.cmp(&other.layer) {
            Ordering::Less => (one.key, other.origin.clone()),
            Ordering::Greater => (other.key, one.origin.clone()),
            Ordering::Equal => {
                let origin = &one.origin;
                let expected = format!(
                    "{first} is set too ({origin}): expected one of them; set the other to \"\""
                );
                self.reject(second, expected);
                return false;
            }
        };
        let mut settings = self.0.settings.iter_mut();
        if let Some(weaker) = settings.find(|setting| setting.key == weaker) {
            weaker.value.clear();
            weaker.valid = true;
            weaker.origin = origin;
        }
        true
    }

    /// Returns the source of the connection string, if exactly one is given.
    fn uri_source(&mut self) -> Option<UriSource> {
        if !self.one_of("mongodb.uri", "mongodb.uri_file") {
            return None;
        }
        match (self.text("mongodb.uri"), self.text("mongodb.uri_file")) {
            (Some(uri), _) => Some(UriSource::Inline(Secret::new(uri))),
            (None, Some(path)) => Some(UriSource::File(PathBuf::from(path))),
            (None, None) => None,
        }
    }

    fn required_uri(&mut self) -> Option<UriSource> {
        if self.is_unset("mongodb.uri") && self.is_unset("mongodb.uri_file") {
            self.missing(
                "mongodb.uri_file or mongodb.uri",
                "set --mongodb-uri-file FILE or LEASEHOLD_MONGODB__URI to the connection string",
            );
        }
        let UriSource::File(path) = self.uri_source()? else {
            let inline = self.text("mongodb.uri")?;
            return Some(UriSource::Inline(Secret::new(inline)));
        };
        let found = match self.0.started_with.take() {
            Some(UriSource::Pipe(known, secret)) if known == path => {
                return Some(UriSource::Pipe(known, secret));
            }
            Some(_) => {
                let file = UriSource::File(path);
                file.read().map(|_| file)
            }
            None => UriSource::open(path),
        };
        found
            .map_err(|error| {
                let origin = self.setting("mongodb.uri_file").origin.clone();
                self.0.problems.push(Problem::Uri(error, origin));
            })
            .ok()
    }

    fn kubernetes(&self) -> Option<KubernetesConfig> {
        let named = |path| self.text(path).map(str::to_owned);
        Some(KubernetesConfig {
            enabled: KubernetesEnabled::from_word(self.text("kubernetes.enabled")?)?,
            pod_name: named("kubernetes.pod_name"),
            pod_uid: named("kubernetes.pod_uid"),
            placement: self.placement()?,
            // The empty path is not a directory, so nothing is found in it.
            credentials: PathBuf::from(self.text("kubernetes.credentials").unwrap_or_default()),
            label_prefix: named("kubernetes.label_prefix")?,
            label_wait: self.duration("kubernetes.label_wait")?,
            demote_others: self.flag("kubernetes.demote_others")?,
            events: self.flag("kubernetes.events")?,
        })
    }

    fn placement(&self) -> Option<Placement> {
        let named = |path| self.text(path).map(str::to_owned);
        Some(Placement {
            namespace: named("kubernetes.pod_namespace"),
            account: named("kubernetes.pod_account"),
            rendered_for: (self.text("kubernetes.rendered_for"))
                .map(RenderedFor::from_text)
                .transpose()
                .ok()?,
        })
    }

    pub(super) fn flag(&self, path: &str) -> Option<bool> {
        value::flag(self.text(path)?).ok()
    }

    fn assemble(
        &self,
        timings: Option<Timings>,
        name: Option<ResourceName>,
        uri: Option<UriSource>,
    ) -> Option<Config> {
        Some(Config {
            lease: LeaseConfig {
                name: name?,
                timings: timings?,
                handoff_delay: self.duration("lease.handoff_delay")?,
                prefer: Prefer::from_word(self.text("lease.prefer")?)?,
                prefer_interval: self.duration("lease.prefer_interval")?,
                profile: Profile::from_word(self.text("lease.profile")?)?,
            },
            identity: Identity::new(self.text("identity.name")?).ok()?,
            priority: self.count("identity.priority")?,
            address: self.text("identity.address").map(str::to_owned),
            mongodb: self.mongodb(uri?)?,
            status_directory: self.text("status.directory").map(PathBuf::from),
            http: HttpConfig {
                listen: value::listen(&self.setting("http.listen").value).ok()?,
                ready_when: ReadyWhen::from_word(self.text("http.ready_when")?)?,
            },
            kubernetes: self.kubernetes()?,
            workload: self.workload()?,
            hooks: self.hooks()?,
            log: self.log()?,
            values: LoadedValues(self.0.settings.clone()),
        })
    }

    fn assemble_lock(
        &self,
        timings: Option<Timings>,
        uri: Option<UriSource>,
    ) -> Option<LockConfig> {
        Some(LockConfig {
            identity: Identity::new(self.text("identity.name")?).ok()?,
            timings: timings?,
            mongodb: self.mongodb(uri?)?,
            workload: self.workload()?,
            placement: self.placement()?,
            log: self.log()?,
        })
    }

    fn mongodb(&self, uri: UriSource) -> Option<MongoConfig> {
        Some(MongoConfig {
            uri,
            database: self.text("mongodb.database")?.to_owned(),
            collection: self.text("mongodb.collection")?.to_owned(),
            heartbeat: self.duration("mongodb.heartbeat")?,
            watch: Watch::from_word(self.text("mongodb.watch")?)?,
        })
    }

    fn log(&self) -> Option<LogConfig> {
        Some(LogConfig {
            level: LogLevel::from_word(self.text("log.level")?)?,
            format: LogFormat::from_word(self.text("log.format")?)?,
        })
    }
}

/// Adds the sections to the names of durations in an error. The election does not know the
/// sections, but an operator has to find the keys in the file.
fn full_names(text: &str) -> String {
    TIMINGS.iter().fold(text.to_owned(), |text, path| {
        let name = path.split_once('.').map_or(*path, |(_, name)| name);
        text.replace(name, path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_durations_get_their_sections() {
        assert_eq!(
            full_names("renew_interval 3s + operation_timeout 3s"),
            "lease.renew_interval 3s + mongodb.operation_timeout 3s"
        );
        assert_eq!(full_names("loss_grace"), "workload.loss_grace");
    }
}
