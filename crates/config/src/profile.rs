//! The durations of each profile. `steady` has the durations of `config/default.toml`.

use super::choice::{Choice, Profile};
use super::error::Origin;
use super::load::{Loaded, Setting};
use super::validate::TIMINGS;

impl Loaded {
    /// Applies the chosen profile to the durations that no layer sets.
    pub(super) fn profile(&mut self) {
        let word = self.setting("lease.profile").value.clone();
        let Some(profile) = Profile::of(&word).filter(|profile| *profile != Profile::Steady) else {
            return;
        };
        for (path, value) in TIMINGS.iter().zip(profile.durations()) {
            let is_default = |s: &&mut Setting| s.layer == 0 && s.key.path() == *path;
            if let Some(setting) = self.settings.iter_mut().find(is_default) {
                value.clone_into(&mut setting.value);
                setting.origin = Origin::Profile(word.clone());
            }
        }
    }
}

impl Profile {
    const fn durations(self) -> [&'static str; 6] {
        match self {
            Self::Steady => ["24s", "18s", "3s", "1s", "3s", "3s"],
            Self::Brisk => ["15s", "10s", "2s", "1s", "3s", "3s"],
            Self::Fast => ["8s", "5800ms", "1s", "500ms", "1500ms", "1s"],
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Config, Setting, Sources, find};
    use super::*;
    use leasehold_core::election::election_gap;

    fn sources(flags: &[(&str, &str)]) -> Sources {
        let required = [
            ("lease.name", "orders"),
            ("mongodb.uri", "mongodb://localhost"),
        ];
        let all = required.iter().chain(flags);
        let flag = |(path, value): &(&str, &str)| (find(path).expect("a key"), (*value).to_owned());
        Sources {
            flags: all.map(flag).collect(),
            ..Sources::default()
        }
    }

    fn config(flags: &[(&str, &str)]) -> Config {
        sources(flags).load().config().expect("valid")
    }

    #[test]
    fn the_steady_profile_has_the_defaults() {
        for (path, value) in TIMINGS.iter().zip(Profile::Steady.durations()) {
            let key = find(path).expect("a key");
            assert_eq!(key.default(), value, "{path}");
        }
        let steady = config(&[("lease.profile", "steady")]);
        assert_eq!(steady, config(&[]));
    }

    #[test]
    fn each_profile_survives_its_mongodb_election() {
        for (profile, lease, election) in [
            ("steady", 24, 10_000),
            ("brisk", 15, 4_000),
            ("fast", 8, 2_000),
        ] {
            let timings = config(&[("lease.profile", profile)]).lease.timings;
            assert_eq!(timings.lease_duration(), Duration::from_secs(lease));
            let gap = election_gap(Duration::from_millis(election));
            let needed = timings.renew_deadline_for(gap);
            assert!(needed <= timings.renew_deadline(), "{profile}: {needed:?}");
        }
    }

    #[test]
    fn an_explicit_duration_overrides_the_profile() {
        let flags = [("lease.profile", "fast"), ("lease.lease_duration", "10s")];
        let timings = config(&flags).lease.timings;
        assert_eq!(timings.lease_duration(), Duration::from_secs(10));
        assert_eq!(timings.renew_interval(), Duration::from_secs(1));
        // A configured value takes precedence even if it equals the default.
        let flags = [("lease.profile", "fast"), ("lease.renew_interval", "3s")];
        let errors = sources(&flags)
            .load()
            .config()
            .expect_err("no room for a retry");
        assert!(
            errors.to_string().contains("lease.renew_deadline"),
            "{errors}"
        );
    }

    #[test]
    fn the_source_of_a_duration_is_the_profile() {
        let settings = sources(&[("lease.profile", "brisk")]).load().settings();
        let settings = settings.expect("valid");
        let of = |path: &str| -> &Setting {
            let found = settings.iter().find(|s| s.key.path() == path);
            found.expect("a key")
        };
        let lease = of("lease.lease_duration");
        assert_eq!(
            (lease.shown(), lease.origin.to_string()),
            ("15s", "lease.profile brisk".to_owned())
        );
        assert_eq!(of("lease.handoff_delay").origin.to_string(), "default");
    }
}
