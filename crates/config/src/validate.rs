use std::cmp::Ordering;
use std::time::Duration;

use leasehold_core::election::{TimingSettings, Timings};
use leasehold_host::duration::shown;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::error::{ConfigError, Origin, Problem};
use super::load::{Loaded, Setting};
use super::schema::ValueType;
use super::secret::{Secret, UriSource};
use super::variables::IgnoredVariable;
use super::{Config, LockConfig, value};

pub(super) const TIMINGS: [&str; 6] = [
    "lease.lease_duration",
    "lease.renew_deadline",
    "lease.renew_interval",
    "lease.retry_interval",
    "mongodb.operation_timeout",
    "workload.loss_grace",
];

/// Keys that have no effect while their feature is off. Flags for these keys are then rejected.
/// Files and variables may still set them, because several daemons can share a file.
struct Dependent {
    keys: &'static [&'static str],
    /// The feature is on if one of these keys has a value other than `off`.
    needs: &'static [&'static str],
    off: &'static str,
    what: &'static str,
}

const DEPENDENTS: [Dependent; 6] = [
    Dependent {
        keys: &["lease.prefer_interval"],
        needs: &["lease.prefer"],
        off: "none",
        what: "automatic handoff, which is off: set lease.prefer to \"priority\"",
    },
    Dependent {
        keys: &[
            "workload.health.period",
            "workload.health.timeout",
            "workload.health.failures",
        ],
        needs: &["workload.health.url", "workload.health.command"],
        off: "",
        what: "a health check: set workload.health.url or workload.health.command",
    },
    Dependent {
        keys: &["hooks.timeout"],
        needs: &["hooks.on_lead", "hooks.on_step_down"],
        off: "",
        what: "a hook: set hooks.on_lead or hooks.on_step_down",
    },
    Dependent {
        keys: &["hooks.on_step_down_stops_workload"],
        needs: &["hooks.on_step_down"],
        off: "",
        what: "a hook: set hooks.on_step_down",
    },
    Dependent {
        keys: &["http.ready_when"],
        needs: &["http.listen"],
        off: "",
        what: "the HTTP endpoints, which are off: set http.listen",
    },
    Dependent {
        keys: &[
            "kubernetes.pod_name",
            "kubernetes.pod_namespace",
            "kubernetes.pod_uid",
            "kubernetes.credentials",
            "kubernetes.label_prefix",
            "kubernetes.label_wait",
            "kubernetes.demote_others",
            "kubernetes.events",
        ],
        needs: &["kubernetes.enabled"],
        off: "off",
        what: "labels and Events, which kubernetes.enabled=off turns off: omit this flag or \
               that setting",
    },
];

impl Loaded {
    /// Returns the configuration of a daemon, which requires a lease and a connection string.
    pub fn config(mut self) -> Result<Config, ConfigError> {
        let timings = self.relations();
        if self.setting("lease.name").is_unset() {
            self.missing(
                "lease.name",
                "set --lease NAME, LEASEHOLD_LEASE__NAME, or name in the section [lease] of a file",
            );
        }
        let uri = self.required_uri();
        let mut config: Config = self.deserialized(timings)?;
        config.mongodb.uri = uri.unwrap_or_default();
        config.settings = self.settings;
        Ok(config)
    }

    /// Returns the configuration of a command other than the daemon. A lease is not required.
    pub fn lock_config(mut self) -> Result<LockConfig, ConfigError> {
        let timings = self.relations();
        let uri = self.required_uri();
        let mut config: LockConfig = self.deserialized(timings)?;
        config.mongodb.uri = uri.unwrap_or_default();
        Ok(config)
    }

    /// Returns the effective values in order. Requires no key, and reads no `mongodb.uri_file`.
    pub fn settings(mut self) -> Result<Vec<Setting>, ConfigError> {
        self.relations();
        self.uri_source();
        self.refuse()?;
        Ok(self.settings)
    }

    /// Returns true if no layer sets a connection string.
    pub fn names_no_store(&self) -> bool {
        ["mongodb.uri", "mongodb.uri_file"].map(|path| self.setting(path).is_unset()) == [true; 2]
    }

    fn relations(&mut self) -> Option<Timings> {
        let timings = self.timings();
        self.health();
        self.unused_flags();
        timings
    }

    fn refuse(&mut self) -> Result<(), ConfigError> {
        let problems = std::mem::take(&mut self.problems);
        match problems.is_empty() {
            true => Ok(()),
            false => Err(ConfigError { problems }),
        }
    }

    fn deserialized<T: DeserializeOwned>(
        &mut self,
        timings: Option<Timings>,
    ) -> Result<T, ConfigError> {
        self.refuse()?;
        let mut sections = json!({});
        for setting in &self.settings {
            let names = setting.key.section.split('.');
            let section = names.fold(&mut sections, |inner, name| &mut inner[name]);
            if section.is_null() {
                *section = json!({});
            }
            let value = value::parse(setting.key.kind, &setting.value).unwrap_or_default();
            if !value.is_null() {
                section[setting.key.name] = value;
            }
        }
        let timings = json!(timings);
        sections["lease"]["timings"] = timings.clone();
        sections["timings"] = timings;
        serde_json::from_value(sections).map_err(|error| {
            let text = format!("the table of keys does not match the types: {error}");
            ConfigError {
                problems: vec![Problem::new(text)],
            }
        })
    }

    pub(super) fn setting(&self, path: &str) -> &Setting {
        self.settings
            .iter()
            .find(|s| path.rsplit_once('.') == Some((s.key.section, s.key.name)))
            .expect("every key that is read is in the table: a test loads them all")
    }

    fn text(&self, path: &str) -> Option<&str> {
        let setting = self.setting(path);
        (setting.valid && !setting.value.is_empty()).then_some(setting.value.as_str())
    }

    fn duration(&self, path: &str) -> Option<Duration> {
        match self.setting(path).key.kind {
            ValueType::Duration(min, max) => value::duration(self.text(path)?, min, max).ok(),
            _ => None,
        }
    }

    pub(super) fn reject(&mut self, path: &str, expected: &str) {
        let Setting {
            key, value, origin, ..
        } = self.setting(path);
        let problem = Problem::invalid(key, value, origin, expected);
        self.problems.push(problem);
    }

    fn missing(&mut self, key: &str, remedy: &str) {
        if self.problems.iter().any(|problem| problem.hides_keys) {
            return;
        }
        let mut text = format!("{key}: required; {remedy}");
        let meant = |ignored: &&IgnoredVariable| {
            ignored
                .meant
                .is_some_and(|meant| key.contains(&meant.path()))
        };
        for ignored in self.ignored.iter().filter(meant) {
            text += &format!("; {ignored}");
        }
        self.problems.push(Problem::new(text));
    }

    fn timings(&mut self) -> Option<Timings> {
        let mut settings = json!({});
        for path in TIMINGS {
            settings[self.setting(path).key.name] = json!(self.duration(path)?);
        }
        let settings: TimingSettings = serde_json::from_value(settings).ok()?;
        let timings = Timings::new(settings);
        for error in timings.as_ref().err().into_iter().flatten() {
            let (key, mut message) = (full_names(error.key), full_names(&error.message));
            if key == TIMINGS[0] && self.setting("lease.profile").layer == 0 {
                message.push_str(
                    "; to shorten all durations: --lease-profile brisk (15s) or fast (8s)",
                );
            }
            self.reject(&key, &message);
        }
        timings.ok()
    }

    fn health(&mut self) {
        self.one_of("workload.health.url", "workload.health.command");
        let timeout = self.duration("workload.health.timeout");
        if let Some(period) = self.duration("workload.health.period")
            && timeout.is_some_and(|timeout| timeout > period)
        {
            let period = shown(period);
            let expected =
                format!("expected at most workload.health.period, {period}: checks would overlap");
            self.reject("workload.health.timeout", &expected);
        }
    }

    /// Resolves two keys that cannot be used together: the later layer wins. Returns false if one
    /// layer sets both.
    fn one_of(&mut self, first: &str, second: &str) -> bool {
        let (one, other) = (self.setting(first), self.setting(second));
        if one.value.is_empty() || other.value.is_empty() {
            return true;
        }
        let (weaker, origin) = match one.layer.cmp(&other.layer) {
            Ordering::Less => (one.key, other.origin.clone()),
            Ordering::Greater => (other.key, one.origin.clone()),
            Ordering::Equal => {
                let set = format!("{first} is set too ({})", one.origin);
                self.reject(
                    second,
                    &(set + ": expected only one of them; set the other to \"\""),
                );
                return false;
            }
        };
        let mut settings = self.settings.iter_mut();
        if let Some(weaker) = settings.find(|setting| setting.key == weaker) {
            weaker.value.clear();
            weaker.valid = true;
            weaker.origin = origin;
        }
        true
    }

    fn uri_source(&mut self) -> Option<UriSource> {
        if !self.one_of("mongodb.uri", "mongodb.uri_file") {
            return None;
        }
        let inline = self
            .text("mongodb.uri")
            .map(|uri| UriSource::Inline(Secret::new(uri)));
        inline.or_else(|| Some(UriSource::File(self.text("mongodb.uri_file")?.into())))
    }

    fn required_uri(&mut self) -> Option<UriSource> {
        if self.names_no_store() {
            self.missing(
                "mongodb.uri_file or mongodb.uri",
                "set --mongodb-uri-file FILE or LEASEHOLD_MONGODB__URI to the connection string",
            );
        }
        let path = match self.uri_source()? {
            UriSource::File(path) => path,
            other => return Some(other),
        };
        let found = match self.started_with.take() {
            Some(UriSource::Pipe(known, secret)) if known == path => {
                return Some(UriSource::Pipe(known, secret));
            }
            Some(_) => {
                let file = UriSource::File(path);
                file.read().map(|_| file)
            }
            None => UriSource::open(path),
        };
        if let Err(error) = &found {
            let origin = &self.setting("mongodb.uri_file").origin;
            let problem = Problem::new(format!("{error} ({origin})"));
            self.problems.push(problem);
        }
        found.ok()
    }

    fn unused_flags(&mut self) {
        for dependent in &DEPENDENTS {
            let on = |key: &&str| {
                let needed = self.setting(key);
                !needed.valid || needed.value != dependent.off
            };
            if dependent.needs.iter().any(on) {
                continue;
            }
            for key in dependent.keys {
                let setting = self.setting(key);
                if setting.valid && matches!(setting.origin, Origin::Flag(_)) {
                    self.reject(key, &format!("it applies to {}", dependent.what));
                }
            }
        }
    }
}

/// In an error of the election core, prefixes the name of each duration with its section.
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
