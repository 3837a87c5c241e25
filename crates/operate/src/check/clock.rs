//! Checks of this host's clocks, and of the rate at which they advance.

use std::time::Duration;
use std::{fs, io};

use super::report::{Check, CheckResult, Checked, Finding, shown};
use super::{Installation, Primary, within};
use leasehold_clock as clock;
use leasehold_mongodb::store::Failure;
use leasehold_mongodb::store::mongo::probe::{ServerTime, StoreProbe};

const CLOCK_SOURCES: &str = "/sys/devices/system/clocksource/clocksource0";
/// Clock sources that are slow to read, or that stop or drift. The kernel chooses one if it found
/// the processor's counter unstable.
const POOR_SOURCES: [&str; 4] = ["acpi_pm", "hpet", "jiffies", "refined-jiffies"];
/// Time between the first and the last reading of the server's clock. With a round trip of 1 ms the
/// rates are known to 0.07 %.
const WATCHED: Duration = Duration::from_secs(3);
/// Readings at each end; the reading with the shortest round trip counts.
const READINGS: usize = 5;
/// Resolution of the server's clock in its replies.
const RESOLUTION: Duration = Duration::from_millis(1);
/// Suspicious error of a clock's rate: working clocks differ by less than a thousandth.
const SUSPICIOUS: f64 = 0.01;

/// Checks the id of the boot and the clock source.
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
            "free descriptors and memory: `leasehold run` does not start without the id of the boot",
        ),
        Ok(None) => Finding::warning(
            "/proc/sys/kernel/random/boot_id does not exist, or may not be read",
            "mount /proc: without the id of the boot, readers cannot check the status file and a restarted leader waits for its own lease",
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

/// Compares the rates of this host's clock and the primary's wall clock. The rates of the
/// clocks of all candidates must be close to each other, and the server is one more clock.
pub(super) async fn rate(installation: &Installation, primary: Primary<'_>) -> Checked {
    primary?;
    let watched = async {
        let first = reading(&installation.store).await?;
        tokio::time::sleep(WATCHED).await;
        Ok((first, reading(&installation.store).await?))
    };
    let watched = within(installation.timeout + WATCHED, watched).await;
    let (first, last) = watched.map_err(|failure| Finding::skipped(failure.to_string()))?;
    if first.server != last.server {
        return Err("the primary changed meanwhile".into());
    }
    let timings = &installation.config.lease.timings;
    let allowed = timings.lease_duration().as_secs_f64() / timings.renew_deadline().as_secs_f64();
    Ok(judged(deviation(&first, &last), allowed))
}

/// Returns the reading with the shortest round trip.
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

/// The difference of two clocks' rates.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Deviation {
    /// The server's rate relative to this host's, minus one.
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
    let error = (round_trip(first) + round_trip(last)) / 2 + RESOLUTION;
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
    let remedy = "find out which clock is wrong (chronyc tracking, kernel log): this host's, or the server's, which may have been set just now";
    let result = match by.abs() - error {
        certain if certain > allowed - 1.0 => CheckResult::Failed,
        certain if certain > SUSPICIOUS => CheckResult::Warning,
        _ => CheckResult::Ok,
    };
    Finding::new(result, detail, remedy)
        .number("deviation_percent", by * 100.0)
        .number("error_percent", error * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::election::BootTime;

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
        // 10.005 s here, 10.505 s there; 15 ms of round trips and 1 ms of resolution.
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
