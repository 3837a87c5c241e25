//! Compares the elections of the set with the configured durations, and shows the arithmetic.

use super::report::{Check, CheckResult, Checked, Finding, Skip, shown};
use super::{Installation, Primary};
use leasehold_cli::store_elections::Needed;
use leasehold_core::election::{Timings, election_gap};
use leasehold_mongodb::store::mongo::probe::{Description, lacks_right};
use leasehold_mongodb::store::{FailoverSettings, StoreKind};

pub(super) async fn checks(installation: &Installation, primary: Primary<'_>) -> Vec<Check> {
    if let Err(why) = primary.and_then(has_elections) {
        return Check::skipped(["election-timeout", "catch-up"], why);
    }
    let timings = &installation.config.lease.timings;
    let settings = installation.store.failover_settings();
    let settings = installation.within(settings).await;
    let settings = settings.map_err(|failure| match lacks_right(&failure) {
        true => "the set's settings are not visible without the right replSetGetConfig (role clusterMonitor)".to_owned(),
        false => failure.to_string(),
    });
    vec![
        Check::new("election-timeout", election(timings, &settings)),
        Check::new("catch-up", catch_up(timings, &settings)),
    ]
}

fn has_elections(description: &Description) -> Result<(), Skip> {
    match description.kind {
        StoreKind::Standalone => Err("a standalone server has no elections"),
        StoreKind::Sharded => Err("a router does not show the elections of its shards"),
        _ => Ok(()),
    }
}

/// Judges with MongoDB's default if the settings are not known.
fn election(timings: &Timings, settings: &Result<FailoverSettings, String>) -> Finding {
    let default = FailoverSettings::default();
    let needed = Needed::of(timings, settings.as_ref().unwrap_or(&default));
    let (arithmetic, remedy) = (&needed.arithmetic, needed.remedy());
    let lost = "an election of the set makes the leader step down";
    match (settings, needed.suffices) {
        (Ok(_), true) => Finding::ok(arithmetic),
        (Ok(_), false) => Finding::warning(format!("{lost}: {arithmetic}"), remedy),
        (Err(why), true) => {
            Finding::skipped(format!("{why}; with MongoDB's default: {arithmetic}"))
        }
        (Err(why), false) => Finding::warning(
            format!("{why}; with MongoDB's default, {lost}: {arithmetic}"),
            format!("{remedy}; rs.conf().settings shows electionTimeoutMillis"),
        ),
    }
    .millis("gap_ms", needed.gap)
    .millis("needed_ms", needed.sum)
    .millis("renew_deadline_ms", timings.renew_deadline())
}

/// If a primary freezes instead of crashing, its successor first catches up with all members, the
/// frozen primary included.
fn catch_up(timings: &Timings, settings: &Result<FailoverSettings, String>) -> Checked {
    let settings = settings.as_ref().map_err(Finding::skipped)?;
    let remedy = "cfg = rs.conf(); cfg.settings.catchUpTimeoutMillis = 2000; rs.reconfig(cfg) (docs/mongodb.md)";
    let Some(catch_up) = settings.catch_up else {
        return Ok(Finding::warning(
            "catchUpTimeoutMillis has no limit: if the primary freezes on a set with several writes a second, the leader may step down",
            remedy,
        ));
    };
    let election = election_gap(settings.noticed_after());
    let gap = election + catch_up;
    let sum = timings.renew_deadline_for(gap);
    let arithmetic = format!(
        "election {} + catchUpTimeoutMillis {} = {} without writes; with a renewal and its retry {}; renew_deadline {}",
        shown(election),
        shown(catch_up),
        shown(gap),
        shown(sum),
        shown(timings.renew_deadline())
    );
    let (result, detail) = match sum <= timings.renew_deadline() {
        true => (CheckResult::Ok, arithmetic),
        false => {
            let detail = format!("if the primary freezes, the leader steps down: {arithmetic}");
            (CheckResult::Warning, detail)
        }
    };
    Ok(Finding::new(result, detail, remedy)
        .millis("catch_up_ms", catch_up)
        .millis("needed_ms", sum))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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

    fn settings(election: u64, catch_up: Option<u64>) -> Result<FailoverSettings, String> {
        Ok(FailoverSettings {
            election_timeout: Duration::from_millis(election),
            heartbeat_interval: Duration::from_millis(election.min(2_000)),
            catch_up: catch_up.map(Duration::from_millis),
        })
    }

    #[test]
    fn the_same_timings_suffice_for_short_elections_only() {
        let of = |timings: &Timings, millis| election(timings, &settings(millis, None)).result;
        assert_eq!(of(&Timings::default(), 10_000), CheckResult::Ok);
        assert_eq!(of(&kubernetes(), 10_000), CheckResult::Warning);
        assert_eq!(of(&kubernetes(), 2_000), CheckResult::Ok);
        let assumed = |timings: &Timings| election(timings, &Err(String::new())).result;
        assert_eq!(assumed(&Timings::default()), CheckResult::Skipped);
        assert_eq!(assumed(&kubernetes()), CheckResult::Warning);
    }

    #[test]
    fn a_catch_up_without_a_limit_is_warned_of() {
        let of = |millis, limit| {
            let checked = catch_up(&Timings::default(), &settings(millis, limit));
            Finding::from(checked).result
        };
        assert_eq!(of(2_000, None), CheckResult::Warning);
        assert_eq!(of(2_000, Some(2_000)), CheckResult::Ok);
        assert_eq!(of(10_000, Some(30_000)), CheckResult::Warning);
    }
}
