//! Checks that this host's clock runs at the primary's rate, and that a leader survives a replica
//! set election.

use std::time::Duration;
use std::{fs, io};

use super::report::{Check, CheckResult, Checked, Finding, Skip, shown};
use super::{Installation, Primary};
use crate::operators::render::three_digits;
use leasehold_cli::store_elections::Needed;
use leasehold_clock as clock;
use leasehold_core::election::{Timings, election_gap};
use leasehold_mongodb::store::mongo::probe::{Description, ServerTime, StoreProbe, lacks_right};
use leasehold_mongodb::store::{FailoverSettings, Failure, StoreKind};

const CLOCK_SOURCES: &str = "/sys/devices/system/clocksource/clocksource0";
/// Clock sources that are slow to read, or may stop or drift. Linux falls back to them if the TSC
/// is unstable.
const POOR_SOURCES: [&str; 4] = ["acpi_pm", "hpet", "jiffies", "refined-jiffies"];
/// Time between the first and the last readings of the server's clock. With round trips of 1 ms,
/// the error is 0.07 %.
const WATCHED: Duration = Duration::from_secs(3);
/// Number of readings at the start, and again at the end. Each time, the check uses the reading
/// with the shortest round trip.
const READINGS: usize = 5;
const SERVER_RESOLUTION: Duration = Duration::from_millis(1);
/// A clock rate that deviates by more than this is suspicious. Working clocks deviate by less than
/// 0.001.
const SUSPICIOUS: f64 = 0.01;

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

/// Checks that a leader survives an election. Assumes MongoDB's defaults for unknown settings.
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

/// Checks the effect of catchUpTimeoutMillis. After a primary freezes, its successor first tries to
/// catch up with all members, including the frozen primary.
fn catch_up(timings: &Timings, settings: &Result<FailoverSettings, String>) -> Checked {
    let settings = settings.as_ref().map_err(Finding::skipped)?;
    let remedy = "cfg = rs.conf(); cfg.settings.catchUpTimeoutMillis = 2000; rs.reconfig(cfg) (docs/mongodb.md)";
    let Some(catch_up) = settings.catch_up else {
        return Ok(Finding::warning(
            "catchUpTimeoutMillis has no limit: if the primary freezes while the set receives several writes per second, the leader may step down",
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
    let finding = match sum <= timings.renew_deadline() {
        true => Finding::ok(arithmetic),
        false => Finding::warning(
            format!("if the primary freezes, the leader steps down: {arithmetic}"),
            remedy,
        ),
    };
    Ok(finding
        .millis("catch_up_ms", catch_up)
        .millis("needed_ms", sum))
}

pub(super) fn of_host() -> [Check; 2] {
    [
        Check::new("boot-id", boot_id(clock::boot_id())),
        Check::new("clock-source", clock_source()),
    ]
}

fn boot_id(found: io::Result<Option<String>>) -> Finding {
    match found {
        Ok(Some(id)) => Finding::ok(id),
        Err(error) => Finding::failed(
            error.to_string(),
            "free descriptors and memory: `leasehold run` does not start without the boot id",
        ),
        Ok(None) => Finding::warning(
            "/proc/sys/kernel/random/boot_id does not exist, or may not be read",
            "mount /proc: without the boot id, readers cannot check the status file and a restarted leader waits for its own lease to expire",
        ),
    }
}

fn clock_source() -> Checked {
    let read = |file: &str| fs::read_to_string(format!("{CLOCK_SOURCES}/{file}"));
    let current = read("current_clocksource")
        .map_err(|_| Finding::skipped(format!("{CLOCK_SOURCES} cannot be read")))?;
    let available = read("available_clocksource").unwrap_or_default();
    Ok(source(current.trim(), available.trim()))
}

fn source(current: &str, available: &str) -> Finding {
    Finding::warning_if(
        POOR_SOURCES.contains(&current),
        format!("{current} (available: {available})"),
        "the kernel found no better clock: search its log for clocksource; in a virtual machine, use the hypervisor's clock (kvm-clock, hyperv) or an invariant TSC",
    )
}

/// Compares the rates of this host's clock and the primary's wall clock. The protocol needs nearly
/// equal clock rates on all candidates.
pub(super) async fn rate(installation: &Installation, primary: Primary<'_>) -> Checked {
    primary?;
    let watched = async {
        let first = reading(&installation.store).await?;
        tokio::time::sleep(WATCHED).await;
        Ok((first, reading(&installation.store).await?))
    };
    let watched = installation.limited(WATCHED, watched).await;
    let (first, last) = watched.map_err(|failure| Finding::skipped(failure.to_string()))?;
    if first.server != last.server {
        return Err("the primary changed meanwhile".into());
    }
    let timings = &installation.config.lease.timings;
    let allowed = timings.lease_duration().as_secs_f64() / timings.renew_deadline().as_secs_f64();
    Ok(judged(deviation(&first, &last), allowed))
}

async fn reading(store: &StoreProbe) -> Result<ServerTime, Failure> {
    let mut best = store.server_time().await?;
    for _ in 1..READINGS {
        let next = store.server_time().await?;
        if round_trip(&next) < round_trip(&best) {
            best = next;
        }
    }
    Ok(best)
}

fn round_trip(time: &ServerTime) -> Duration {
    time.received.since(time.sent)
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Deviation {
    /// The rate of the server's clock divided by the rate of this host's clock, minus one.
    by: f64,
    /// Maximum error of `by`.
    error: f64,
    over: Duration,
}

fn deviation(first: &ServerTime, last: &ServerTime) -> Deviation {
    let middle = |time: &ServerTime| time.sent + round_trip(time) / 2;
    let over = middle(last).since(middle(first));
    let local = over.as_secs_f64();
    let server = (last.wall_ms - first.wall_ms) as f64 / 1e3;
    let error = (round_trip(first) + round_trip(last)) / 2 + SERVER_RESOLUTION;
    Deviation {
        by: server / local - 1.0,
        error: error.as_secs_f64() / local,
        over,
    }
}

fn judged(deviation: Deviation, allowed: f64) -> Finding {
    let Deviation { by, error, over } = deviation;
    let detail = format!(
        "{:+.2} % ± {:.2} % against the primary's wall clock over {}; lease_duration / renew_deadline allows a ratio of {allowed:.2}",
        by * 100.0,
        error * 100.0,
        shown(over)
    );
    let remedy = "check this host's and the server's clocks (chronyc tracking, kernel log); the server's clock may just have been set";
    let result = match by.abs() - error {
        certain if certain > allowed - 1.0 => CheckResult::Failed,
        certain if certain > SUSPICIOUS => CheckResult::Warning,
        _ => CheckResult::Ok,
    };
    Finding::new(result, detail, remedy)
        .number("deviation_percent", three_digits(by * 100.0))
        .number("error_percent", three_digits(error * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::election::{BootTime, TimingSettings};

    fn kubernetes() -> Timings {
        let seconds = Duration::from_secs;
        let settings = TimingSettings {
            lease_duration: seconds(15),
            renew_deadline: seconds(10),
            renew_interval: seconds(2),
            ..TimingSettings::default()
        };
        Timings::new(settings).expect("valid timings")
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

    fn time(at_ms: u64, round_trip_ms: u64, wall_ms: i64) -> ServerTime {
        let sent = BootTime::default() + Duration::from_millis(at_ms);
        ServerTime {
            server: "a:1".to_owned(),
            sent,
            received: sent + Duration::from_millis(round_trip_ms),
            wall_ms,
        }
    }

    #[test]
    fn a_boot_that_cannot_be_read_now_is_a_failure() {
        let of = |found| boot_id(found).result;
        assert_eq!(of(Ok(Some("b".to_owned()))), CheckResult::Ok);
        assert_eq!(of(Ok(None)), CheckResult::Warning);
        assert_eq!(of(Err(io::Error::other("EMFILE"))), CheckResult::Failed);
    }

    #[test]
    fn the_rate_is_known_up_to_the_round_trips() {
        let measured = deviation(&time(0, 10, 1_000_005), &time(10_000, 20, 1_010_510));
        // This host: 10.005 s. Server: 10.505 s. Error: 15 ms of round trips, 1 ms of resolution.
        assert!((measured.by - 0.05).abs() < 1e-4, "{measured:?}");
        assert!((measured.error - 0.0016).abs() < 1e-4, "{measured:?}");
    }

    #[test]
    fn only_a_deviation_beyond_the_error_counts() {
        let of = |by, error| {
            let over = Duration::from_secs(3);
            judged(Deviation { by, error, over }, 1.33).result
        };
        assert_eq!(of(0.0001, 0.0007), CheckResult::Ok);
        assert_eq!(of(0.02, 0.0007), CheckResult::Warning);
        assert_eq!(of(-0.02, 0.0007), CheckResult::Warning);
        assert_eq!(of(0.02, 0.015), CheckResult::Ok);
        assert_eq!(of(0.5, 0.01), CheckResult::Failed);
    }

    #[test]
    fn a_source_that_the_kernel_fell_back_to_is_warned_of() {
        assert_eq!(source("tsc", "tsc hpet acpi_pm").result, CheckResult::Ok);
        assert_eq!(source("hpet", "hpet acpi_pm").result, CheckResult::Warning);
    }
}
