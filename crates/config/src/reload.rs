//! Reads a configuration again while its daemon runs.

use super::Config;
use super::error::ConfigError;
use super::load::{Loaded, Sources};
use super::schema::{Key, Reload};

impl Config {
    /// Reads the sources again, and returns the configuration that applies from now on, with the
    /// keys that differ in the sources. A key that requires a restart keeps its value. The contents
    /// of a `uri_file` are not compared, because the file is read at each connection.
    ///
    /// # Errors
    /// If the new configuration is invalid, alone or together with the values that are kept.
    pub fn reload(&self, sources: &Sources) -> Result<(Self, Vec<&'static Key>), ConfigError> {
        let new = sources.load().config()?;
        let pairs = || self.settings.iter().zip(&new.settings);
        let differences = pairs().filter(|(old, new)| old != new);
        let differences = differences.map(|(old, _)| old.key).collect();
        let kept = pairs().map(|(old, new)| match old.key.reload {
            Reload::Restart => old.clone(),
            Reload::Now | Reload::NextClaim => new.clone(),
        });
        let applied = Loaded {
            settings: kept.collect(),
            started_with: sources.started_with.clone(),
            ..Loaded::default()
        };
        let applied = applied.config().map_err(|mut error| {
            for problem in &mut error.problems {
                problem.text += " (together with the values that require a restart)";
            }
            error
        })?;
        Ok((applied, differences))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find;

    fn sources(changes: &[(&str, &str)]) -> Sources {
        let base = [
            ("lease.name", "orders"),
            ("mongodb.uri", "mongodb://h"),
            ("identity.name", "a"),
        ];
        let flags = base.iter().chain(changes);
        let flag = |(path, value): &(&str, &str)| (find(path).expect("a key"), (*value).to_owned());
        Sources {
            flags: flags.map(flag).collect(),
            ..Sources::default()
        }
    }

    fn with(changes: &[(&str, &str)]) -> Config {
        sources(changes).load().config().expect("valid")
    }

    fn reloaded(current: &Config, changes: &[(&str, &str)]) -> (Config, Vec<String>) {
        let (config, differences) = current.reload(&sources(changes)).expect("valid");
        (config, differences.into_iter().map(Key::path).collect())
    }

    #[test]
    fn a_value_in_another_form_is_equal() {
        let minute = with(&[("workload.stop_grace", "60s"), ("http.listen", ":9402")]);
        let same = [
            ("workload.stop_grace", "1m"),
            ("http.listen", "0.0.0.0:9402"),
        ];
        assert_eq!(reloaded(&minute, &same), (minute, Vec::new()));
    }

    #[test]
    fn a_change_that_needs_a_restart_is_reported_by_each_reload() {
        let new = [("log.level", "debug"), ("http.listen", "")];
        let (current, differences) = reloaded(&with(&[]), &new);
        assert_eq!(differences, ["http.listen", "log.level"]);
        assert_eq!(current, with(&new[..1]));
        let (current, differences) = reloaded(&current, &new);
        assert_eq!(differences, ["http.listen"]);
        assert_eq!(current, with(&new[..1]));
    }

    #[test]
    fn new_values_apply_unless_they_need_a_restart() {
        let new = [
            ("log.level", "debug"),
            ("lease.lease_duration", "30s"),
            ("mongodb.uri", "mongodb://other"),
            ("lease.handoff_delay", "5s"),
        ];
        let restart = [("http.listen", ""), ("mongodb.heartbeat", "5s")];
        let (current, differences) = reloaded(&with(&[]), &[&new[..], &restart].concat());
        assert_eq!(current, with(&new));
        assert_eq!(differences.len(), new.len() + restart.len());
    }

    #[test]
    fn durations_that_fit_only_after_a_restart_are_refused() {
        let new = [
            ("lease.renew_deadline", "7s"),
            ("mongodb.operation_timeout", "1s"),
        ];
        let refused = with(&[]).reload(&sources(&new)).expect_err("a conflict");
        let text = refused.to_string();
        assert!(text.contains("mongodb.operation_timeout 3s"), "{text}");
        assert!(text.contains("require a restart"), "{text}");
        assert_eq!(with(&new).lease.timings.renew_deadline().as_secs(), 7);
    }
}
