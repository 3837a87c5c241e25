//! Measures a takeover after a crash, from the holder's last acknowledged renewal.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_testbed::daemon::leads;
use leasehold_testbed::{Daemon, DaemonTimings, Scratch};

use crate::floor::Floor;
use crate::launch::{Setup, directories, nanos, seconds, watching};
use crate::observer::Observer;
use crate::report::{Bound, Row, Statistic, Unit};

const LEADS_MAX: Duration = Duration::from_secs(60);
/// Maximum time until a file shows the last acknowledged renewal. The daemon writes the file within
/// milliseconds.
const FILE_FOLLOWS: Duration = Duration::from_millis(200);
/// Number of renewals before a crash. A follower of hints that has just started learns only with the
/// first two renewals when the holder renews.
const RENEWALS: usize = 3;
/// Delay between the starts, and between the crashes, of two leases, so that the samples are
/// independent.
const STAGGER: Duration = Duration::from_millis(137);
/// Number of majority writes that are measured while a crashed leader's lease expires.
const WRITES: usize = 20;

#[derive(Default)]
pub(crate) struct Takeovers {
    /// Time from sending the last renewal to each takeover, in seconds.
    pub(crate) durations: Vec<f64>,
    /// Duration of majority writes in a connected client during the takeovers, in seconds.
    pub(crate) writes: Vec<f64>,
}

pub(crate) async fn measure(setup: Setup) -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, timings) in [
        ("defaults 24/18/3", DaemonTimings::DEFAULT),
        ("15/10/2", DaemonTimings::KUBERNETES),
    ] {
        let flags = timings.flags();
        let crashed = crashes(&setup, timings, &flags, setup.count(10, 4)).await;
        let series = crashed.durations;
        let duration = timings.lease_duration.as_secs_f64();
        let bounds = [
            Bound::AtLeast(Statistic::Min, duration),
            Bound::AtMost(Statistic::Max, duration + 0.100),
        ];
        let what = format!("SIGKILL: last renewal → another leads, {name}");
        rows.push(Row::new("takeover", what, Unit::Time, &series, &bounds));
        let beyond: Vec<_> = series.iter().map(|took| took - duration).collect();
        let what = format!("of which beyond lease_duration, {name}");
        rows.push(Row::new("takeover", what, Unit::Time, &beyond, &[]));
    }
    rows
}

/// Crashes the holders of `count` leases on one replica set. Two daemons contend for each lease,
/// with flags that set these timings.
pub(crate) async fn crashes(
    setup: &Setup,
    timings: DaemonTimings,
    flags: &[String],
    count: usize,
) -> Takeovers {
    let set = setup.set().await;
    let scratch = Scratch::new();
    let paths = directories(scratch.path(), 2 * count);
    let mut observer = Observer::start(&paths);
    // The daemons start one after another, so that the renewals of the leases do not coincide.
    let pairs = join_all((0..count).map(async |index| {
        tokio::time::sleep(STAGGER * u32::try_from(index).expect("few leases")).await;
        let start = |place: usize| {
            let daemon = setup
                .daemon(&format!("l{index}"), &format!("d{place}"), &set.uri())
                .status_directory(&paths[place]);
            let flags = flags.iter();
            flags.fold(daemon, |daemon, flag| daemon.flag(flag)).start()
        };
        let holder = start(2 * index);
        holder.wait_leads(LEADS_MAX).await;
        let contender = start(2 * index + 1);
        watching(&contender).await;
        (holder, contender)
    }))
    .await;
    let mut floor = Floor::start(&set).await;
    observer.forget();
    let crashed = pairs.iter().enumerate().map(async |(index, (holder, _))| {
        tokio::time::sleep(STAGGER * u32::try_from(index).expect("few leases")).await;
        crash(holder, timings).await
    });
    let renewed_ns = join_all(crashed).await;
    for _ in 0..WRITES {
        floor.round().await;
    }
    let mut led_ns = vec![None; count];
    while led_ns.contains(&None) {
        let seen = observer
            .find("the other daemon takes over", LEADS_MAX, |seen| {
                seen.index % 2 == 1 && seen.leads_until_ns().is_some()
            })
            .await;
        led_ns[seen.index / 2].get_or_insert(seen.at_ns);
    }
    let led_ns = led_ns.into_iter().flatten();
    let pairs = renewed_ns.into_iter().zip(led_ns);
    Takeovers {
        durations: pairs.map(|(renewed, led)| seconds(renewed, led)).collect(),
        writes: floor.writes,
    }
}

/// Crashes the leader of one lease repeatedly. This many daemons contend for the lease.
pub(crate) async fn crashes_among(
    setup: &Setup,
    timings: DaemonTimings,
    contenders: usize,
    rounds: usize,
) -> Takeovers {
    let set = setup.set().await;
    let scratch = Scratch::new();
    let paths = directories(scratch.path(), contenders);
    let mut observer = Observer::start(&paths);
    let start = |(index, path): (usize, &std::path::PathBuf)| {
        setup
            .daemon("crash", &format!("d{index}"), &set.uri())
            .status_directory(path)
            .timings(timings)
            .start()
    };
    let mut daemons: Vec<Daemon> = paths.iter().enumerate().map(start).collect();
    let mut leader = observer
        .find("one leads", LEADS_MAX, |seen| {
            seen.leads_until_ns().is_some()
        })
        .await
        .index;
    join_all(daemons.iter().map(watching)).await;
    let mut floor = Floor::start(&set).await;
    let mut durations = Vec::new();
    for _ in 0..rounds {
        let old = leader;
        let renewed_ns = crash(&daemons[old], timings).await;
        observer.forget();
        for _ in 0..WRITES {
            floor.round().await;
        }
        let seen = observer
            .find("another takes over", LEADS_MAX, |seen| {
                seen.index != old && seen.leads_until_ns().is_some()
            })
            .await;
        durations.push(seconds(renewed_ns, seen.at_ns));
        leader = seen.index;
        daemons[old].restart_same_directory();
        watching(&daemons[old]).await;
    }
    let writes = floor.writes;
    Takeovers { durations, writes }
}

/// Kills a holder between two renewals. Returns the time when the holder sent the last renewal.
pub(crate) async fn crash(holder: &Daemon, timings: DaemonTimings) -> u64 {
    for _ in 0..RENEWALS {
        let before = holder.status()["valid_until_boottime_ns"].clone();
        let renewed = |status: &serde_json::Value| {
            leads(status) && status["valid_until_boottime_ns"] != before
        };
        holder.wait_until(renewed, LEADS_MAX).await;
    }
    tokio::time::sleep(FILE_FOLLOWS).await;
    holder.kill();
    let until = holder.status()["valid_until_boottime_ns"].as_u64();
    until.expect("a killed leader's file has a deadline") - nanos(timings.renew_deadline)
}
