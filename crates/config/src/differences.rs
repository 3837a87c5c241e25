//! Differences between two configurations, key by key, as they were loaded.

use std::fmt;

use super::load::Setting;
use super::schema::{Key, Reload};
use super::{Config, value};

/// A key whose value differs between two configurations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Difference {
    /// The key.
    pub key: &'static Key,
    /// Effect of a reload on it.
    pub reload: Reload,
}

/// The values of all keys, with the connection string.
#[derive(Clone)]
pub(super) struct LoadedValues(pub(super) Vec<Setting>);

impl LoadedValues {
    /// Returns the keys and values in a form in which equal values are equal texts.
    fn comparable(&self) -> impl Iterator<Item = (&'static Key, String)> {
        let values = self.0.iter();
        values.map(|setting| {
            (
                setting.key,
                value::canonical(setting.key.kind, &setting.value),
            )
        })
    }
}

impl PartialEq for LoadedValues {
    fn eq(&self, other: &Self) -> bool {
        self.comparable().eq(other.comparable())
    }
}

impl Eq for LoadedValues {}

impl fmt::Debug for LoadedValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(values)")
    }
}

impl Config {
    /// Returns the keys that a reload to `new` would change, in the order of the documentation. The
    /// contents of a `uri_file` are not compared, because the file is read at each connection.
    pub fn differences(&self, new: &Self) -> Vec<Difference> {
        let pairs = self.values.comparable().zip(new.values.comparable());
        pairs
            .filter(|(old, new)| old != new)
            .map(|((key, _), _)| Difference {
                key,
                reload: key.reload,
            })
            .collect()
    }

    /// Notes the values of `new` that a reload has applied. The next reload is compared with them.
    pub fn applied(&mut self, new: &Self) {
        let values = self.values.0.iter_mut().zip(&new.values.0);
        for (value, new) in values.filter(|(value, _)| value.key.reload != Reload::Restart) {
            value.clone_from(new);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Sources, find};

    fn with(changes: &[(&str, &str)]) -> Config {
        let base = [
            ("lease.name", "orders"),
            ("mongodb.uri", "mongodb://h"),
            ("identity.name", "a"),
        ];
        let flags = base
            .iter()
            .chain(changes)
            .map(|(path, value)| (find(path).expect("a key"), (*value).to_owned()))
            .collect();
        let sources = Sources {
            flags,
            ..Sources::default()
        };
        sources.load().config().expect("valid")
    }

    #[test]
    fn a_value_in_another_form_is_equal() {
        let minute = with(&[("workload.stop_grace", "60s"), ("http.listen", ":9402")]);
        let same = [
            ("workload.stop_grace", "1m"),
            ("http.listen", "0.0.0.0:9402"),
        ];
        assert_eq!(minute.differences(&with(&same)), []);
    }

    #[test]
    fn a_change_that_needs_a_restart_is_reported_by_each_reload() {
        let mut current = with(&[]);
        let new = with(&[("log.level", "debug"), ("http.listen", "")]);
        current.applied(&new);
        let left = current.differences(&new);
        let keys: Vec<_> = left.iter().map(|it| it.key.path()).collect();
        assert_eq!(keys, ["http.listen"]);
    }

    #[test]
    fn differences_say_what_a_reload_does() {
        let differences = |changes| -> Vec<_> {
            with(&[])
                .differences(&with(changes))
                .into_iter()
                .map(|d| (d.key.path(), d.reload))
                .collect()
        };
        let owned = |path: &str, reload| (path.to_owned(), reload);
        assert_eq!(
            differences(&[
                ("log.level", "debug"),
                ("lease.lease_duration", "30s"),
                ("http.listen", ""),
                ("mongodb.uri", "mongodb://other"),
            ]),
            [
                owned("lease.lease_duration", Reload::NextClaim),
                owned("mongodb.uri", Reload::Now),
                owned("http.listen", Reload::Restart),
                owned("log.level", Reload::Now),
            ]
        );
    }
}
