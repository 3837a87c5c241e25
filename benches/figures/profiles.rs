//! Measures the profiles of `lease.profile`: takeover after a leader crash, and leaderships lost
//! when MongoDB's primary is killed. Each profile runs on a replica set with the longest elections
//! that the profile tolerates.

use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_testbed::daemon::boottime_ns;
use leasehold_testbed::{Daemon, DaemonTimings, ReplicaSet, Scratch};

use crate::launch::{Setup, directories, seconds, watching};
use crate::observer::Observer;
use crate::report::{Bound, Row, Statistic, Unit};
use crate::takeover::crashes;

const LEADS_MAX: Duration = Duration::from_secs(90);
/// Number of leases, each with its own leader. All leaders experience the same election, each at a
/// different phase of its renewals.
const LEASES: usize = 5;
const SPREAD: Duration = Duration::from_millis(317);
/// Time for the killed member to return as a secondary, and for the drivers to notice.
const SETTLE: Duration = Duration::from_secs(5);

struct Profile {
    name: &'static str,
    timings: DaemonTimings,
    election: Duration,
}

const PROFILES: [Profile; 3] = [
    profile(
        "steady",
        [24_000, 18_000, 3_000, 1_000, 3_000, 3_000],
        10_000,
    ),
    profile("brisk", [15_000, 10_000, 2_000, 1_000, 3_000, 3_000], 4_000),
    profile("fast", [8_000, 5_800, 1_000, 500, 1_500, 1_000], 2_000),
];

const fn profile(name: &'static str, durations: [u64; 6], election: u64) -> Profile {
    let [lease, deadline, renew, retry, operation, loss] = durations;
    Profile {
        name,
        timings: DaemonTimings {
            lease_duration: Duration::from_millis(lease),
            renew_deadline: Duration::from_millis(deadline),
            renew_interval: Duration::from_millis(renew),
            retry_interval: Duration::from_millis(retry),
            operation_timeout: Duration::from_millis(operation),
            loss_grace: Duration::from_millis(loss),
        },
        election: Duration::from_millis(election),
    }
}

/// Measures all profiles at once, each on its own replica set, because a measurement spends most of
/// its time waiting.
pub(crate) async fn measure(setup: Setup) -> Vec<Row> {
    let measured = PROFILES.each_ref().map(|profile| of(&setup, profile));
    join_all(measured).await.concat()
}

async fn of(setup: &Setup, profile: &Profile) -> Vec<Row> {
    let Profile { name, timings, .. } = *profile;
    let flag = [format!("--lease-profile={name}")];
    let crashed = crashes(setup, timings, &flag, setup.count(10, 2)).await;
    let series = crashed.durations;
    let duration = timings.lease_duration.as_secs_f64();
    let bounds = [
        Bound::AtLeast(Statistic::Min, duration),
        Bound::AtMost(Statistic::Max, duration + 0.100),
    ];
    let what = format!("SIGKILL: last renewal → another leads, {name}");
    let takeover = Row::new("profiles", what, Unit::Time, &series, &bounds);
    let [renewed, lost] = killed_primaries(setup, profile).await;
    vec![takeover, renewed, lost]
}

async fn killed_primaries(setup: &Setup, profile: &Profile) -> [Row; 2] {
    let set = ReplicaSet::builder().election_timeout(profile.election);
    let set = set.start().await;
    let (mut waited, mut lost) = (Vec::new(), 0.0);
    let kills = setup.count(20, 1);
    for round in 0..kills {
        // Each round uses new daemons, because a daemon that misses its deadline twice within ten
        // minutes lets other candidates go first.
        let scratch = Scratch::new();
        let paths = directories(scratch.path(), LEASES);
        let mut observer = Observer::start(&paths);
        let name = format!("{}-{round}", profile.name);
        let daemons = leaders(setup, &set, profile, &name, &paths).await;
        for (took, was_lost) in kill(&set, &daemons, &mut observer).await {
            waited.push(took);
            lost += f64::from(u8::from(was_lost));
        }
        drop(daemons);
        tokio::time::sleep(SETTLE).await;
    }
    let name = profile.name;
    let election = profile.election.as_millis();
    let what = format!("primary killed → next renewal, {name}, electionTimeoutMillis {election}");
    let renewed = Row::new("profiles", what, Unit::Time, &waited, &[]);
    let what = format!("leaderships lost, of {LEASES} on each of {kills} killed primaries, {name}");
    let none = [Bound::AtMost(Statistic::Max, 0.0)];
    let lost = Row::new("profiles", what, Unit::Count, &[lost], &none);
    [renewed, lost]
}

/// Kills the primary, and restarts it once every leader has renewed. Returns the time until each
/// leader's next renewal, and whether the leader lost its leadership.
pub(crate) async fn kill(
    set: &ReplicaSet,
    daemons: &[Daemon],
    observer: &mut Observer,
) -> Vec<(f64, bool)> {
    let before: Vec<_> = daemons.iter().map(Daemon::status).collect();
    let primary = set.primary().await;
    observer.forget();
    let killed_ns = boottime_ns();
    set.kill(primary);
    let mut renewed = vec![None; daemons.len()];
    while renewed.contains(&None) {
        let seen = observer
            .find("all renew again", LEADS_MAX, |seen| {
                // A renewal that was acknowledged before the kill does not count.
                let until = before[seen.index]["valid_until_boottime_ns"].as_u64();
                seconds(killed_ns, seen.at_ns) > 0.5 && seen.leads_until_ns() > until
            })
            .await;
        let lost = seen.token() != before[seen.index]["token"].as_i64();
        let took = seconds(killed_ns, seen.at_ns);
        renewed[seen.index].get_or_insert((took, lost));
    }
    set.restart(primary).await;
    renewed.into_iter().flatten().collect()
}

async fn leaders(
    setup: &Setup,
    set: &ReplicaSet,
    profile: &Profile,
    name: &str,
    paths: &[PathBuf],
) -> Vec<Daemon> {
    join_all(paths.iter().enumerate().map(async |(index, path)| {
        tokio::time::sleep(SPREAD * u32::try_from(index).expect("few")).await;
        let daemon = setup
            .daemon(&format!("{name}-{index}"), &format!("d{index}"), &set.uri())
            .status_directory(path)
            .flag(&format!("--lease-profile={}", profile.name))
            .leading(LEADS_MAX)
            .await;
        watching(&daemon).await;
        daemon
    }))
    .await
}
