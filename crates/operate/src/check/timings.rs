//! Compares the elections of the set with the configured durations, and shows the arithmetic.

use super::report::{Check, Name, shown};
use super::{Installation, NOT_REACHED, within};
use leasehold_cli::store_elections::Needed;
use leasehold_core::election::{Timings, election_gap};
use leasehold_mongodb::store::FailoverSettings;
use leasehold_mongodb::store::mongo::probe::{DeploymentKind, Description, lacks_right};

pub(super) async fn checks(
    installation: &Installation,
    reached: Option<&Description>,
) -> Vec<Check> {
    let Installation {
        config,
        store,
        timeout,
    } = installation;
    let skipped = |why: &str| {
        let names = [Name::ElectionTimeout, Name::CatchUp];
        names.map(|name| Check::skipped(name, why)).into()
    };
    match reached.map(|description| &description.kind) {
        None => return skipped(NOT_REACHED),
        Some(DeploymentKind::Standalone) => return skipped("a standalone server has no elections"),
        Some(DeploymentKind::Router) => {
            return skipped("a router does not show the elections of its shards");
        }
        Some(DeploymentKind::ReplicaSet(_)) => {}
    }
    let timings = &config.lease.timings;
    match within(*timeout, store.failover_settings()).await {
        Ok(settings) => vec![election(timings, &settings), catch_up(timings, &settings)],
        Err(failure) => {
            let why = match lacks_right(&failure) {
                true => "the set's settings are not shown without the right replSetGetConfig (role clusterMonitor)".to_owned(),
                false => failure.to_string(),
            };
            vec![assumed(timings, &why), Check::skipped(Name::CatchUp, why)]
        }
    }
}

fn numbered(needed: &Needed, check: Check, timings: &Timings) -> Check {
    check
        .millis("gap_ms", needed.gap)
        .millis("needed_ms", needed.sum)
        .millis("renew_deadline_ms", timings.renew_deadline())
}

fn election(timings: &Timings, settings: &FailoverSettings) -> Check {
    let name = Name::ElectionTimeout;
    let needed = Needed::of(timings, settings);
    let check = match needed.suffices() {
        true => Check::ok(name, needed.arithmetic.as_str()),
        false => Check::warning(
            name,
            format!(
                "an election of the set costs the leadership: {}",
                needed.arithmetic
            ),
            needed.remedy(),
        ),
    };
    numbered(&needed, check, timings)
}

/// Judges with MongoDB's default, since the setting is not known.
fn assumed(timings: &Timings, why: &str) -> Check {
    let name = Name::ElectionTimeout;
    let needed = Needed::of(timings, &FailoverSettings::default());
    let check = match needed.suffices() {
        true => Check::skipped(
            name,
            format!("{why}; with MongoDB's default: {}", needed.arithmetic),
        ),
        false => Check::warning(
            name,
            format!(
                "{why}; with MongoDB's default, an election costs the leadership: {}",
                needed.arithmetic
            ),
            format!(
                "lower electionTimeoutMillis if it is not lower already (rs.conf().settings), or raise lease.renew_deadline to {} or more",
                shown(needed.sum)
            ),
        ),
    };
    numbered(&needed, check, timings)
}

/// If a primary freezes instead of crashing, its successor first catches up with all members, the
/// frozen one included.
fn catch_up(timings: &Timings, settings: &FailoverSettings) -> Check {
    let name = Name::CatchUp;
    let remedy = "cfg = rs.conf(); cfg.settings.catchUpTimeoutMillis = 2000; rs.reconfig(cfg) (docs/mongodb.md)";
    let Some(catch_up) = settings.catch_up else {
        return Check::warning(
            name,
            "catchUpTimeoutMillis has no limit: a primary that freezes can cost the leadership on a set with several writes a second",
            remedy,
        );
    };
    let gap = election_gap(settings.noticed_after()) + catch_up;
    let sum = timings.renew_deadline_for(gap);
    let arithmetic = format!(
        "election {} + catchUpTimeoutMillis {} = {} without writes; with a renewal and its retry {}; renew_deadline {}",
        shown(election_gap(settings.noticed_after())),
        shown(catch_up),
        shown(gap),
        shown(sum),
        shown(timings.renew_deadline())
    );
    match sum <= timings.renew_deadline() {
        true => Check::ok(name, arithmetic),
        false => Check::warning(
            name,
            format!("a primary that freezes costs the leadership: {arithmetic}"),
            remedy,
        ),
    }
    .millis("catch_up_ms", catch_up)
    .millis("needed_ms", sum)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::report::CheckResult;
    use super::*;
    use leasehold_core::election::TimingSettings;

    fn kubernetes() -> Timings {
        let seconds = Duration::from_secs;
        let settings = TimingSettings {
            lease_duration: seconds(15),
            renew_deadline: seconds(10),
            renew_interval: seconds(2),
            ..TimingSettings::default()
        };
        Timings::new(settings).expect("they keep the rules")
    }

    fn settings(election: u64, catch_up: Option<u64>) -> FailoverSettings {
        FailoverSettings {
            election_timeout: Duration::from_millis(election),
            heartbeat_interval: Duration::from_millis(election.min(2_000)),
            catch_up: catch_up.map(Duration::from_millis),
        }
    }

    #[test]
    fn the_same_timings_suffice_for_short_elections_only() {
        let of = |timings: &Timings, millis| election(timings, &settings(millis, None)).outcome();
        assert_eq!(of(&Timings::default(), 10_000), CheckResult::Ok);
        assert_eq!(of(&kubernetes(), 10_000), CheckResult::Warning);
        assert_eq!(of(&kubernetes(), 2_000), CheckResult::Ok);
        assert_eq!(
            assumed(&Timings::default(), "").outcome(),
            CheckResult::Skipped
        );
        assert_eq!(assumed(&kubernetes(), "").outcome(), CheckResult::Warning);
    }

    #[test]
    fn a_catch_up_without_a_limit_is_warned_of() {
        let of = |millis, limit| catch_up(&Timings::default(), &settings(millis, limit)).outcome();
        assert_eq!(of(2_000, None), CheckResult::Warning);
        assert_eq!(of(2_000, Some(2_000)), CheckResult::Ok);
        assert_eq!(of(10_000, Some(30_000)), CheckResult::Warning);
    }
}
